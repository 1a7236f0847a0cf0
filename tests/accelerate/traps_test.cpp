// The traps of standing behind another library's operator, one test for each. From the eleventh on, they are
// in reach_test.cpp. Python's are in traps_test.py.

#include <atomic>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_make_dual.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_unpack_dual.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/library.h>

#include <attentive/parity/compare.h>

#include "accelerate/sdpa_call.h"
#include "accelerate/sdpa_calls.h"
#include "support/errors.h"
#include "support/shell.h"

using namespace attentive;
using namespace attentive::test;
using accelerate::EverySizeGuard;
using torch::autograd::grad;

namespace {

c10::OperatorHandle handle_of(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

// Excludes PyTorch's fused kernels for a scope, as Python's sdpa_kernel(MATH) does.
struct OnlyMath {
  OnlyMath() { at::globalContext().setSDPUseFlash(false); }
  ~OnlyMath() { at::globalContext().setSDPUseFlash(true); }
  OnlyMath(const OnlyMath&) = delete;
};

// A level of forward-mode differentiation.
struct Level {
  Level() : id(torch::autograd::ForwardADLevel::get_next_idx()) {}
  ~Level() { torch::autograd::ForwardADLevel::release_idx(id); }
  Level(const Level&) = delete;
  uint64_t id;
};

// The gradients of q, k and v, and those of the sum of their squares.
std::vector<at::Tensor> two_derivatives(const SdpaCase& given) {
  auto call = given;
  std::vector<at::Tensor> leaves;
  for (auto* x : {&call.q, &call.k, &call.v}) {
    *x = x->detach().clone().requires_grad_();
    leaves.push_back(*x);
  }
  if (call.mask_gradient) {
    call.mask = call.mask.detach().clone().requires_grad_();
    leaves.push_back(call.mask);
  }
  at::manual_seed(21);
  const auto first = grad({sdpa(call).square().sum()}, leaves, {}, true, /*create_graph=*/true);
  auto total = at::zeros({}, call.q.options());
  for (const auto& x : first) total = total + x.square().sum();
  auto found = grad({total}, leaves);
  for (const auto& x : first) found.push_back(x.detach());
  return found;
}

// A run of this program with one hidden test; its standard error follows its output.
std::string run_hidden(const std::string& tag) {
  return run_in_shell("/proc/" + std::to_string(::getpid()) + "/exe '" + tag + "' 2>&1");
}

}  // namespace

TEST_CASE("trap 1: scaled_dot_product_attention gets no kernel at the CPU key", "[accelerate][trap]") {
  const SdpaGuard guard;
  const auto handle = handle_of("aten::scaled_dot_product_attention");
  CHECK(handle.hasKernelForDispatchKey(c10::DispatchKey::AutogradCPU));
  CHECK_FALSE(handle.hasKernelForDispatchKey(c10::DispatchKey::CPU));
  CHECK(handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd));
}

TEST_CASE("trap 2: calls are taken whatever PyTorch's selector says, and it says the same",
          "[accelerate][trap]") {
  const EverySizeGuard every_size;
  at::manual_seed(1);
  auto call = random_call("dropout");
  call.dropout_p = 0.1;
  const auto choice = [&] {
    return std::pair(at::_fused_sdp_choice(call.q, call.k, call.v),
                     at::_fused_sdp_choice(call.q, call.k, call.v, std::nullopt, call.dropout_p));
  };
  const auto off = choice();
  CHECK(off.first != off.second);  // the fused kernel; the composition
  const SdpaGuard guard;
  CHECK(choice() == off);
  reset_sdpa_report();
  run(call);
  CHECK(sdpa_report().taken == 1);
}

TEST_CASE("trap 3: only ordinary CPU tensors are taken", "[accelerate][trap]") {
  at::manual_seed(2);
  auto call = random_call("negative bit");
  call.q = at::imag(at::randn({2, 4, 33, 16}, at::kComplexFloat).conj());
  REQUIRE(call.q.is_neg());
  const EverySizeGuard every_size;
  const auto off = sdpa(call);
  const SdpaGuard guard;
  reset_sdpa_report();
  CHECK(bit_equal(sdpa(call), off));
  CHECK(only_reason() == "it needs ordinary CPU tensors");

  const auto plain = random_call("mode");
  const std::optional<at::Tensor> no_mask;
  const auto decide = [&] { return accelerate::decide_sdpa({plain.q, plain.k, plain.v, no_mask}); };
  CHECK(decide().problem.has_value());
  for (const auto key : {c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
                         c10::DispatchKey::FuncTorchDynamicLayerFrontMode}) {
    const c10::impl::IncludeDispatchKeyGuard listener(key);
    CHECK(decide().reason == "a dispatch mode or a transform sees PyTorch's operators");
    const c10::impl::ExcludeDispatchKeyGuard deaf(key);
    CHECK(decide().problem.has_value());
  }
}

TEST_CASE("trap 4: a program that excludes fused kernels gets the composition", "[accelerate][trap]") {
  at::manual_seed(3);
  const auto call = random_call("math");
  const OnlyMath math;
  CHECK(left_alone(call) == "the program excludes fused kernels (sdpa_kernel, setSDPUseFlash)");
  const SdpaGuard guard;
  CHECK(two_derivatives(call).size() == 6);
  const Level level;
  const auto dual = at::_make_dual(call.q, at::ones_like(call.q), static_cast<int64_t>(level.id));
  auto forward = call;
  forward.q = dual;
  CHECK(std::get<1>(at::_unpack_dual(sdpa(forward), static_cast<int64_t>(level.id))).defined());
}

TEST_CASE("trap 4: forward-mode differentiation is refused as before", "[accelerate][trap]") {
  at::manual_seed(3);
  auto call = random_call("tangent");
  const Level level;
  call.k = at::_make_dual(call.k, at::ones_like(call.k), static_cast<int64_t>(level.id));
  const auto error = [&] { return error_of<c10::Error>([&] { sdpa(call); }); };
  const auto off = error();
  const EverySizeGuard every_size;
  const SdpaGuard guard;
  reset_sdpa_report();
  CHECK(error() == off);
  CHECK(sdpa_report().left.at(0).reason == "it does not support forward-mode differentiation");
}

TEST_CASE("trap 5: gradients are differentiated again, through dropout and a mask too",
          "[accelerate][trap]") {
  const EverySizeGuard every_size;
  at::manual_seed(4);
  for (const auto& [mask, shared] : {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    auto call = random_call("twice", {.queries = 9, .keys = 12});
    if (shared) {
      for (auto* x : {&call.k, &call.v}) *x = x->narrow(0, 0, 1);
    }
    call.causal = !mask;
    if (mask) call.mask = at::randn({4, 9, 12});
    call.mask_gradient = mask;
    std::vector<at::Tensor> want;
    {
      const OnlyMath math;
      want = two_derivatives(cast(call, at::kDouble));
    }
    const SdpaGuard guard;
    const auto got = two_derivatives(call);
    REQUIRE(got.size() == want.size());
    for (size_t n = 0; n < want.size(); ++n) CHECK(distance(got[n], want[n]) < 1e-5);

    // With dropout: the gradient of the gradient along a direction equals a difference of gradients with the
    // same key, since the graph draws none.
    call.dropout_p = 0.3;
    auto leaf = call;
    leaf.q = call.q.clone().requires_grad_();
    const auto direction = at::randn(call.q.sizes());
    const auto slope = [&](const at::Tensor& q, bool graph) {
      auto moved = call;
      moved.q = q;
      at::manual_seed(22);
      const auto y = sdpa(moved);
      return grad({y.square().sum()}, {q}, {}, true, graph)[0];
    };
    const auto second = grad({(slope(leaf.q, true) * direction).sum()}, {leaf.q})[0];
    const double step = 1e-2;
    const auto ahead = slope((call.q + step * direction).requires_grad_(), false);
    const auto behind = slope((call.q - step * direction).requires_grad_(), false);
    CHECK(distance(second, (ahead - behind) / (2 * step)) < 2e-2);
  }
}

TEST_CASE("trap 6: outputs, gradients and logsumexps lie in memory as PyTorch's", "[accelerate][trap]") {
  const EverySizeGuard every_size;
  at::manual_seed(5);
  std::vector<SdpaCase> calls;
  for (const bool by_token : {false, true}) {
    calls.push_back(random_call("same sizes", {.queries = 20, .by_token = by_token}));
    calls.push_back(random_call("other values", {.value_dim = 24, .by_token = by_token}));
  }
  const auto packed = at::randn({2, 33, 3, 4, 16}).permute({2, 0, 3, 1, 4});
  calls.push_back({"packed", packed[0], packed[1], packed[2]});
  const auto repeated = at::randn({2, 1, 33, 16}).expand({2, 4, 33, 16});
  calls.push_back({"repeated", repeated, repeated, repeated});
  calls.push_back(random_call("columns"));
  for (auto* x : {&calls.back().q, &calls.back().k, &calls.back().v})
    *x = x->transpose(2, 3).contiguous().transpose(2, 3);
  for (const auto& call : calls) {
    INFO(call.name << ", q " << call.q.strides());
    const auto off = sdpa(call).strides().vec();
    const SdpaGuard guard;
    reset_sdpa_report();
    CHECK(sdpa(call).strides().vec() == off);
    CHECK(sdpa_report().taken == 1);
  }
  for (size_t n : {0, 2, 4}) {
    const auto& call = calls[n];
    const auto strides = [&] {
      const auto [y, lse] = at::_scaled_dot_product_flash_attention_for_cpu(call.q, call.k, call.v);
      const auto [a, b, c] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          at::randn(y.sizes()), call.q, call.k, call.v, y, lse, 0.0, false);
      return std::vector{y.strides().vec(), lse.strides().vec(), a.strides().vec(), b.strides().vec(),
                         c.strides().vec()};
    };
    const auto off = strides();
    const SdpaGuard guard;
    CHECK(strides() == off);
  }
  const SdpaGuard guard;
  CHECK(sdpa(calls[0]).view({8, 20, 16}).size(0) == 8);
}

TEST_CASE("trap 7: the fused operator's two passes know each other by the logsumexp alone",
          "[accelerate][trap]") {
  const EverySizeGuard every_size;
  at::manual_seed(6);
  for (const int64_t queries : {3, 33}) {
    auto call = random_call("rows without keys", {.queries = queries, .keys = 33});
    const auto keep = at::rand({queries, 33}) > 0.3;
    keep.select(0, 1).fill_(false);
    const auto mask =
        at::zeros({queries, 33}).masked_fill(keep.logical_not(), -std::numeric_limits<double>::infinity());
    const auto grad_y = at::randn(call.q.sizes());
    const auto forward = [&] {
      return at::_scaled_dot_product_flash_attention_for_cpu(call.q, call.k, call.v, 0.0, false, mask);
    };
    const auto backward = [&](const std::tuple<at::Tensor, at::Tensor>& from) {
      const auto [a, b, c] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          grad_y, call.q, call.k, call.v, std::get<0>(from), std::get<1>(from), 0.0, false, mask);
      return std::vector{a, b, c};
    };
    const auto theirs = forward();
    const auto want = backward(theirs);
    decltype(forward()) ours;
    {
      const SdpaGuard guard;
      ours = forward();
      CHECK(bit_equal(std::get<1>(ours).isinf(), std::get<1>(theirs).isinf()));
      CHECK(distance(std::get<1>(ours).nan_to_num(0, 0, 0), std::get<1>(theirs).nan_to_num(0, 0, 0)) < 1e-6);
      for (const auto& from : {ours, theirs}) {
        const auto got = backward(from);
        for (size_t n = 0; n < 3; ++n) CHECK(distance(got[n], want[n]) < 2e-6);
      }
    }
    const auto mixed = backward(ours);
    for (size_t n = 0; n < 3; ++n) CHECK(distance(mixed[n], want[n]) < 2e-6);
  }
}

TEST_CASE("trap 8: a backward pass runs after acceleration was stopped", "[accelerate][trap]") {
  const EverySizeGuard every_size;
  at::manual_seed(7);
  auto call = random_call("stopped");
  call.dropout_p = 0.2;
  SdpaResults want;
  at::Tensor y, q = call.q.clone().requires_grad_();
  {
    const SdpaGuard guard;
    want = run(call);
    call.q = q;
    at::manual_seed(3);
    y = sdpa(call);
  }
  REQUIRE_FALSE(accelerates_sdpa());
  at::manual_seed(4);
  y.backward(at::randn(y.sizes()));
  CHECK(bit_equal(q.grad(), want.tensors[1]));
}

TEST_CASE("trap 8: another library's kernel of the same operator is not replaced", "[accelerate][trap]") {
  CHECK(run_hidden("[.another_library]").find("All tests passed") != std::string::npos);
}

TEST_CASE("the operator of another library", "[.another_library]") {
  const auto refusal = [] { return error_of<c10::NotImplementedError>([] { accelerate_sdpa(); }); };
  const std::string name = "aten::_scaled_dot_product_fused_attention_overrideable";
  {
    torch::Library other(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    other.impl("_scaled_dot_product_fused_attention_overrideable", torch::CppFunction::makeFallthrough());
    CHECK(refusal() == "accelerate_sdpa: another library has registered " + name + " for CPU");
  }
  {
    torch::Library other(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    other.impl("_scaled_dot_product_flash_attention_for_cpu", torch::CppFunction::makeFallthrough());
    CHECK(refusal() ==
          "accelerate_sdpa: another library has registered "
          "aten::_scaled_dot_product_flash_attention_for_cpu for CPU");
  }
  CHECK_FALSE(accelerates_sdpa());
  accelerate_sdpa();  // both are gone
  CHECK(accelerates_sdpa());
}

TEST_CASE("trap 9: registration does not warn", "[accelerate][trap]") {
  const auto text = run_hidden("[.first_call]");
  CHECK(text.find("All tests passed") != std::string::npos);
  CHECK(text.find("arning") == std::string::npos);
}

TEST_CASE("the first call of a process", "[.first_call]") {
  accelerate_sdpa();
  CHECK(accelerates_sdpa());
}

TEST_CASE("trap 10: the switch may be thrown while threads call", "[accelerate][trap]") {
  const EverySizeGuard every_size;
  at::manual_seed(8);
  auto call = random_call("threads");
  call.causal = true;
  const auto want = sdpa(cast(call, at::kDouble));
  std::atomic<int64_t> wrong{0}, done{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, mine = call]() mutable {
      while (!stop) {
        mine.q = call.q.clone().requires_grad_();
        const auto y = sdpa(mine);
        y.sum().backward();
        wrong += !(distance(y.detach(), want) < 2e-6) || !(mine.q.grad().norm().item<double>() < 1e3);
        ++done;
      }
    });
  }
  for (int n = 0; n < 400 || done < 30; ++n) {
    n % 2 == 0 ? accelerate_sdpa() : stop_accelerating_sdpa();
    std::this_thread::yield();
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  stop_accelerating_sdpa();
  CHECK(wrong == 0);
}
