#pragma once

// Requirements on every module of this package, whatever it computes. Each module test runs them by one call.

#include <functional>
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <attentive/core/options.h>

#include "support/autocast.h"
#include "support/cells.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/gradcheck.h"

namespace attentive::test {

/// `Holder` is a TORCH_MODULE. `call` runs it on one input; modules with several inputs bind the others.
template <class Holder>
struct ModuleSuite {
  std::function<Holder()> make;
  std::vector<int64_t> input_shape;
  std::vector<std::string> keys;  ///< state-dict names in registration order
  std::function<at::Tensor(Holder&, const at::Tensor&)> call = [](auto& m,
                                                                  const at::Tensor& x) -> at::Tensor {
    if constexpr (requires { at::Tensor(m->forward(x)); })
      return m->forward(x);
    else
      return {};  // with several inputs or results, the test sets `call`
  };
  /// The parameters that are members of the module itself, not of a Linear child.
  std::function<std::vector<at::Tensor*>(Holder&)> own_parameters;
  bool sequential = true;  ///< takes one tensor, returns one tensor
  bool has_dropout = true;
  bool unbatched = false;  ///< takes (T, C) as well as (B, T, C)
  bool meta = true;        ///< false for layer norms: ATen computes them on meta tensors from Python only

  void run() {
    names();
    clone_keeps_random_state();
    save_and_load();
    dtypes();
    eval_and_train();
    gradient_matches_differences();
    result_changes_in_place();
    inference_mode();
    inference_then_training();
    follows_default_dtype();
    empty_holder();
    if (meta) meta_device();
    if (unbatched) without_batch();
    every_device();
    if (sequential) in_sequential();
    prints();
  }

  at::Tensor input(at::ScalarType type = at::kFloat) const { return at::randn(input_shape).to(type); }

  void names() {
    Holder module = make();
    std::vector<std::string> got;
    for (const auto& item : module->named_parameters()) got.push_back(item.key());
    CHECK(got == keys);
    CHECK(module->named_buffers().size() == 0);
  }

  void clone_keeps_random_state() {
    Holder module = make();
    at::manual_seed(7);
    const auto expected = at::rand({3});
    at::manual_seed(7);
    const auto copy = module->clone();
    CHECK(bit_equal(at::rand({3}), expected));
    const auto copied = copy->named_parameters();
    for (const auto& item : module->named_parameters()) {
      CHECK(bit_equal(item.value(), copied[item.key()]));
      CHECK_FALSE(item.value().is_same(copied[item.key()]));
    }
    Holder twin(std::dynamic_pointer_cast<typename Holder::Impl>(copy));
    const auto x = input();
    module->eval();
    twin->eval();
    CHECK(bit_equal(call(module, x), call(twin, x)));
  }

  void save_and_load() {
    Holder module = make();
    std::stringstream stream;
    torch::save(module, stream);
    Holder other = make();
    torch::load(other, stream);
    const auto x = input();
    module->eval();
    other->eval();
    CHECK(bit_equal(call(module, x), call(other, x)));
  }

  void dtypes() {
    Holder module = make();
    module->eval();
    module->to(at::kDouble);
    const auto x = input(at::kDouble);
    const auto exact = call(module, x);
    CHECK(exact.scalar_type() == at::kDouble);
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      Holder low = make();
      low->eval();
      const auto state = module->named_parameters();
      {
        const at::NoGradGuard no_grad;
        for (auto& item : low->named_parameters()) item.value().copy_(state[item.key()]);
      }
      low->to(type);
      const auto y = call(low, x.to(type));
      CHECK(y.scalar_type() == type);
      INFO("dtype " << c10::toString(type));
      const double rtol = type == at::kFloat ? 1e-5 : type == at::kHalf ? 5e-3 : 4e-2;
      CHECK_WITHIN(y, exact, {rtol, 2e-6});
    }
  }

  void eval_and_train() {
    Holder module = make();
    const auto x = input();
    module->eval();
    CHECK(bit_equal(call(module, x), call(module, x)));
    if (!has_dropout) return;
    for (const auto stream : {DropoutStream::Any, DropoutStream::Aten, DropoutStream::Counter}) {
      const DropoutStreamGuard guard(stream);
      module->train();
      at::manual_seed(11);
      const auto first = call(module, x);
      const auto second = call(module, x);
      at::manual_seed(11);
      const auto again = call(module, x);
      CHECK(bit_equal(first, again));
      CHECK_FALSE(bit_equal(first, second));
      module->eval();
      CHECK_FALSE(bit_equal(first, call(module, x)));
    }
  }

  void gradient_matches_differences() {
    Holder module = make();
    module->eval();
    module->to(at::kDouble);
    const auto x = input(at::kDouble).requires_grad_(true);
    std::vector<at::Tensor> leaves = module->parameters();
    leaves.push_back(x);
    CHECK(gradcheck_leaves([&] { return call(module, x); }, leaves) == "");
  }

  /// Checks that `y += …` on a module's result gives the gradients of `y + …`, whatever its backward pass
  /// reads.
  void result_changes_in_place() {
    Holder module = make();
    module->eval();
    const auto x = input().requires_grad_(true);
    std::vector<at::Tensor> leaves = module->parameters();
    leaves.push_back(x);
    for (const auto backend : {Backend::Auto, Backend::Native, Backend::Torch, Backend::Reference}) {
      INFO("backend " << to_string(backend));
      const BackendGuard guard(backend);
      const auto gradients = [&](bool in_place) {
        auto y = call(module, x);
        const auto factor = at::arange(y.numel(), y.options()).view(y.sizes());
        if (in_place) {
          y *= factor;
        } else {
          y = y * factor;
        }
        return torch::autograd::grad({y.square().sum()}, leaves, {}, false, false, /*allow_unused=*/true);
      };
      const auto want = gradients(false), got = gradients(true);
      for (size_t n = 0; n < want.size(); ++n) {
        INFO("leaf " << n);
        REQUIRE(got[n].defined() == want[n].defined());
        if (want[n].defined()) CHECK(difference(got[n], want[n], tolerance_of(at::kFloat, true)) == "");
      }
    }
  }

  /// Checks inference mode on every backend and in every dtype, for inputs made inside and outside of it,
  /// with and without a graph built before.
  void inference_mode() {
    for (const auto backend : kAllBackends) {
      const BackendGuard guard(backend);
      for (const auto type : kAllTypes) {
        INFO("backend " << to_string(backend) << ", " << c10::toString(type));
        Holder module = make();
        module->eval();
        module->to(type);
        const auto x = input(type);
        at::Tensor want;
        {
          const at::NoGradGuard no_grad;
          want = call(module, x);
        }
        const c10::InferenceMode inference;
        CHECK(bit_equal(call(module, x), want));
        CHECK(bit_equal(call(module, x.clone()), want));
      }
    }
  }

  /// Checks that state which a module keeps from a call under InferenceMode can be used in a training step.
  void inference_then_training() {
    Holder module = make();
    {
      const c10::InferenceMode inference;
      module->eval();
      call(module, input());
    }
    module->train();
    const auto x = input().requires_grad_(true);
    call(module, x).square().sum().backward();
    CHECK(x.grad().defined());
    for (const auto& item : module->named_parameters()) {
      INFO(item.key());
      REQUIRE(item.value().grad().defined());
      const at::NoGradGuard no_grad;
      item.value().sub_(item.value().grad(), 0.1);
    }
    CHECK(call(module, input()).isfinite().all().template item<bool>());
  }

  void follows_default_dtype() {
    const DefaultDtype wide(at::kDouble);
    Holder module = make();
    for (const auto& item : module->named_parameters()) {
      INFO(item.key());
      CHECK(item.value().scalar_type() == at::kDouble);
    }
    module->eval();
    CHECK(call(module, input(at::kDouble)).scalar_type() == at::kDouble);
  }

  void empty_holder() {
    std::ostringstream out;
    out << make();
    const auto printed = out.str();  // attentive::Name(...)
    const auto name = printed.substr(11, printed.find('(') - 11);
    Holder empty = nullptr;
    const auto& constant = empty;
    const auto expected = name +
                          ": expected a holder with a module, got an empty one, made from nullptr; assign " +
                          name + "(...) to it first";
    for (const std::function<void()>& use : std::initializer_list<std::function<void()>>{
             [&] { empty->train(); }, [&] { (void)constant->is_training(); }, [&] { (void)*empty; },
             [&] { (void)empty.ptr(); }, [&] { (void)constant.get(); }}) {
      CHECK(error_of<c10::ValueError>(use) == expected);
    }
  }

  void meta_device() {
    Holder module = make();
    // Module::to refuses the meta device in C++, so the members are replaced one by one.
    const auto to_meta = [](at::Tensor& tensor) {
      if (tensor.defined()) tensor = at::empty_like(tensor, at::kMeta).requires_grad_(true);
    };
    for (const auto& child : module->modules()) {
      if (auto* linear = child->template as<torch::nn::Linear>()) {
        to_meta(linear->weight);
        to_meta(linear->bias);
      }
    }
    if (own_parameters) {
      for (at::Tensor* parameter : own_parameters(module)) to_meta(*parameter);
    }
    auto x = at::randn(input_shape, at::kMeta).requires_grad_(true);
    for (const bool train : {false, true}) {
      module->train(train);
      const auto y = call(module, x);
      CHECK(y.is_meta());
      y.sum().backward();
      CHECK(x.grad().sizes() == x.sizes());
    }
  }

  void without_batch() {
    Holder module = make();
    module->eval();
    const auto x = input();
    const auto y = call(module, x);
    for (int64_t b = 0; b < x.size(0); ++b) CHECK_CLOSE(call(module, x[b]), y[b]);
  }

  void every_device() {
    Holder module = make();
    module->eval();
    const auto x = input();
    auto leaf = x.clone().requires_grad_(true);
    const auto y = call(module, leaf);
    y.sum().backward();
    for (const auto& device : devices()) {
      INFO("device " << device);
      module->zero_grad();  // Module::to leaves gradients where they are
      module->to(device);
      auto there = x.to(device).detach().clone().requires_grad_(true);
      const auto got = call(module, there);
      CHECK(got.device() == there.device());
      CHECK_CLOSE(got, y);
      got.sum().backward();
      CHECK(difference(there.grad(), leaf.grad(), tolerance_of(at::kFloat, true)) == "");
      if (device.is_cuda()) {
        module->to(at::kBFloat16);
        CHECK_WITHIN(call(module, x.to(device, at::kBFloat16)), y, {4e-2, 2e-6});  // as on the CPU: dtypes()
        module->to(at::kFloat);
      }
    }
  }

  void in_sequential() {
    Holder module = make();
    torch::nn::Sequential sequence(module);
    module->eval();
    const auto x = input();
    CHECK(bit_equal(sequence->forward(x), call(module, x)));
  }

  void prints() {
    Holder module = make();
    std::ostringstream out;
    out << module;
    CHECK(out.str().rfind("attentive::", 0) == 0);
  }
};

}  // namespace attentive::test
