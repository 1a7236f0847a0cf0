// Tests of checkpointed functions: bits, gradients of everything that a function reads, and state that two
// runs share.

#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <attentive/core/options.h>
#include <attentive/functional/activation_checkpoint.h>
#include <attentive/functional/attention.h>
#include <attentive/functional/attention_recorder.h>
#include <attentive/modules/transformer_blocks.h>

#include "support/autocast.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/gradcheck.h"
#include "support/memory_meter.h"

using namespace attentive;
using namespace attentive::test;
using torch::autograd::grad;

namespace {

using One = std::function<at::Tensor(const at::Tensor&)>;

TransformerBlock block_with_dropout() {
  TransformerBlockOptions options(TransformerAttentionOptions(16, 4).dropout(0.2));
  return TransformerBlock(options.dropout(0.3));
}

at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::randn(sizes, type).requires_grad_(true);
}

std::vector<at::Tensor> with(std::vector<at::Tensor> list, const at::Tensor& x) {
  list.push_back(x);
  return list;
}

void check_bits(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("tensor " << i);
    CHECK(got[i].defined() == want[i].defined());
    if (got[i].defined() && want[i].defined()) CHECK(bit_equal(got[i].detach(), want[i].detach()));
  }
}

// The outputs and gradients of a function with and without a checkpoint, from the same seed, and the next
// number that the generator draws.
std::vector<at::Tensor> results(const One& function, const at::Tensor& x,
                                const std::vector<at::Tensor>& parameters, bool checkpoint) {
  at::manual_seed(11);
  const auto y = checkpoint ? activation_checkpoint(function, x) : function(x);
  const auto drawn = at::rand({3});
  auto found = grad({y.sin().sum()}, with(parameters, x));
  found.push_back(y);
  found.push_back(drawn);
  found.push_back(at::rand({3}));
  return found;
}

}  // namespace

TEST_CASE("activation_checkpoint: a block with dropout has the same bits", "[activation_checkpoint]") {
  at::manual_seed(1);
  const auto block = block_with_dropout();
  const auto x = leaf({2, 7, 16});
  const One function = [block](const at::Tensor& y) { return block.ptr()->forward(y); };
  check_bits(results(function, x, block->parameters(), true),
             results(function, x, block->parameters(), false));
  const One twice = [function](const at::Tensor& y) { return function(function(y)); };
  check_bits(results(twice, x, block->parameters(), true), results(twice, x, block->parameters(), false));
}

TEST_CASE("activation_checkpoint: autocast, backend and dropout stream are those of the first run",
          "[activation_checkpoint]") {
  at::manual_seed(2);
  const auto block = block_with_dropout();
  const auto x = leaf({2, 7, 16});
  const One function = [block](const at::Tensor& y) { return block.ptr()->forward(y); };
  const auto gradients = [&](bool checkpoint) {
    at::manual_seed(3);
    at::Tensor y;
    {
      const CpuAutocast autocast(at::kBFloat16);
      const BackendGuard backend(Backend::Reference);
      const DropoutStreamGuard stream(DropoutStream::Aten);
      y = checkpoint ? activation_checkpoint(function, x) : function(x);
    }
    return grad({y.to(at::kFloat).sin().sum()}, with(block->parameters(), x));
  };
  check_bits(gradients(true), gradients(false));
  // Autocast around the backward pass alone does not reach the second run.
  const auto seen = std::make_shared<std::vector<bool>>();
  const One looks = [seen](const at::Tensor& y) {
    seen->push_back(at::autocast::is_autocast_enabled(at::kCPU));
    return y.sin();
  };
  const auto y = activation_checkpoint(looks, x);
  const CpuAutocast autocast(at::kBFloat16);
  y.sum().backward();
  CHECK(*seen == std::vector{false, false});
  CHECK(at::autocast::is_autocast_enabled(at::kCPU));
  CHECK(at::autocast::is_autocast_cache_enabled());
}

TEST_CASE("activation_checkpoint: a weight of several calls under autocast", "[activation_checkpoint]") {
  at::manual_seed(3);
  const auto weight = leaf({16, 16}), x = leaf({5, 16});
  const One function = [weight](const at::Tensor& y) { return at::linear(y, weight); };
  const auto gradients = [&](bool checkpoint) {
    at::Tensor y;
    {
      const CpuAutocast autocast(at::kBFloat16);  // forgets its casts at the end
      y = function(x);
      for (int i = 0; i < 2; ++i) y = checkpoint ? activation_checkpoint(function, y) : function(y);
    }
    return grad({y.to(at::kFloat).sum()}, {weight, x});
  };
  const auto got = gradients(true), want = gradients(false);
  // Without a checkpoint, the gradients of the uses are summed in bfloat16.
  for (size_t i = 0; i < got.size(); ++i)
    CHECK_WITHIN(got[i], want[i], {0, 0.02 * want[i].abs().max().item<double>()});
}

TEST_CASE("activation_checkpoint: calls nest", "[activation_checkpoint]") {
  at::manual_seed(4);
  const auto first = block_with_dropout(), second = block_with_dropout();
  const auto x = leaf({2, 7, 16});
  const One one = [first](const at::Tensor& y) { return first.ptr()->forward(y); };
  const One two = [second](const at::Tensor& y) { return second.ptr()->forward(y); };
  auto parameters = first->parameters();
  for (const auto& p : second->parameters()) parameters.push_back(p);
  const One plain = [=](const at::Tensor& y) { return two(one(y)); };
  const One nested = [=](const at::Tensor& y) {
    return activation_checkpoint(two, activation_checkpoint(one, y));
  };
  check_bits(results(nested, x, parameters, true), results(plain, x, parameters, false));
}

TEST_CASE("activation_checkpoint: a parameter of several calls gets one sum", "[activation_checkpoint]") {
  at::manual_seed(5);
  const auto weight = leaf({4, 4}), x = leaf({3, 4});
  const One function = [weight](const at::Tensor& y) { return at::linear(y, weight).tanh(); };
  const auto run = [&](bool checkpoint) {
    int hooks = 0;
    auto w = weight;
    w.mutable_grad().reset();
    const auto hook = w.register_hook([&](const at::Tensor& g) {
      ++hooks;
      return g * 2.0;
    });
    auto y = x;
    for (int i = 0; i < 3; ++i) y = checkpoint ? activation_checkpoint(function, y) : function(y);
    y = y + at::linear(x, weight);  // and once outside
    y.sum().backward();
    w.remove_hook(hook);
    CHECK(hooks == 1);
    return std::vector{w.grad().clone(), y};
  };
  check_bits(run(true), run(false));
}

TEST_CASE("activation_checkpoint: tensors that the function captured", "[activation_checkpoint]") {
  at::manual_seed(6);
  const auto a = leaf({3}), b = leaf({3}), frozen = at::randn({3});
  const auto run = [&](bool checkpoint) {
    const auto inner = a * b;  // not a leaf: its graph belongs to the caller
    const One function = [=](const at::Tensor& x) { return x * inner + b * frozen; };
    const auto x = inner.exp();
    const auto y = checkpoint ? activation_checkpoint(function, x) : function(x);
    return grad({(y * inner).sum()}, {a, b});
  };
  check_bits(run(true), run(false));
  // Nothing but a parameter needs a gradient.
  const One alone = [&](const at::Tensor& x) { return x * a; };
  check_bits(grad({activation_checkpoint(alone, frozen).sum()}, {a}), grad({alone(frozen).sum()}, {a}));
}

TEST_CASE("activation_checkpoint: several inputs and outputs, with and without gradients",
          "[activation_checkpoint]") {
  at::manual_seed(7);
  const auto x = leaf({4, 3}), y = leaf({4, 3}), plain = at::randn({4, 3});
  const auto index = at::randint(3, {4, 1}, at::kLong);
  const CheckpointedFunction function = [](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{in[0] * in[1], in[3],       in[0],
                                   at::Tensor(),  in[2] + 1.0, in[1].gather(1, in[3]).exp()};
  };
  const std::vector<at::Tensor> inputs{x, y, plain, index, at::Tensor()};
  const auto got = activation_checkpoint(function, inputs), want = function(inputs);
  check_bits(got, want);
  for (size_t i = 0; i < got.size(); ++i) {
    if (want[i].defined()) CHECK(got[i].requires_grad() == want[i].requires_grad());
  }
  const auto gradients = [&](const std::vector<at::Tensor>& out, std::vector<size_t> used) {
    auto total = at::zeros({});
    for (const auto i : used) total = total + out[i].sum();
    return grad({total}, {x, y}, {}, /*retain_graph=*/true, false, /*allow_unused=*/true);
  };
  for (const auto& used : std::vector<std::vector<size_t>>{{0}, {2}, {5}, {0, 2}, {0, 2, 5}}) {
    auto a = gradients(got, used), b = gradients(want, used);
    for (size_t i = 0; i < a.size(); ++i) {
      if (!b[i].defined()) b[i] = at::zeros_like(inputs[i]);
      if (!a[i].defined()) a[i] = at::zeros_like(inputs[i]);
    }
    check_bits(a, b);
  }
  // A result may be changed in place.
  auto changed = activation_checkpoint(function, inputs)[0];
  changed += 1.0;
  check_bits(grad({changed.sum()}, {x}), grad({(x * y).sum()}, {x}));
}

TEST_CASE("activation_checkpoint: gradients can be differentiated again", "[activation_checkpoint]") {
  at::manual_seed(8);
  const auto x = leaf({3, 4}, at::kDouble), weight = leaf({4, 4}, at::kDouble);
  const auto loss_of = [](const std::vector<at::Tensor>& in, bool checkpoint) {
    const auto w = in[1];
    const One function = [w](const at::Tensor& y) { return at::dropout(at::linear(y, w).tanh(), 0.3, true); };
    at::manual_seed(9);
    const auto y = checkpoint ? activation_checkpoint(function, in[0] * 2.0) : function(in[0] * 2.0);
    return y.exp().sum();
  };
  const auto second = [&](bool checkpoint) {
    const auto first = grad({loss_of({x, weight}, checkpoint)}, {x, weight}, {}, true, /*create_graph=*/true);
    auto found = grad({first[0].square().sum() + first[1].sin().sum()}, {x, weight});
    found.insert(found.end(), first.begin(), first.end());
    return found;
  };
  const auto got = second(true), want = second(false);
  for (size_t i = 0; i < got.size(); ++i) CHECK_WITHIN(got[i].detach(), want[i].detach(), {1e-12, 1e-14});
  CHECK(gradcheck([&](const std::vector<at::Tensor>& in) { return loss_of(in, true); }, {x, weight}) == "");
}

TEST_CASE("activation_checkpoint: a retained graph runs again", "[activation_checkpoint]") {
  at::manual_seed(10);
  const auto block = block_with_dropout();
  const auto x = leaf({2, 5, 16});
  const auto y = activation_checkpoint([block](const at::Tensor& z) { return block.ptr()->forward(z); }, x);
  const auto leaves = with(block->parameters(), x);
  const auto first = grad({y.sum()}, leaves, {}, /*retain_graph=*/true);
  check_bits(grad({y.sum()}, {x}, {}, /*retain_graph=*/true), {first.back()});
  check_bits(grad({y.sum()}, leaves), first);
  CHECK_THROWS(grad({y.sum()}, leaves));
}

TEST_CASE("activation_checkpoint: generators and training flags are restored", "[activation_checkpoint]") {
  at::manual_seed(12);
  auto generator = at::detail::createCPUGenerator(5);
  const auto x = leaf({40});
  const One function = [generator](const at::Tensor& y) {
    return y * at::rand({40}, generator).gt(0.5) * at::rand({40}).gt(0.5);
  };
  const auto y = activation_checkpoint(function, x, {.generators = {generator}});
  const auto state = generator.get_state();
  const auto gradient = grad({y.sum()}, {x})[0];
  CHECK(bit_equal(gradient.ne(0), y.detach().ne(0)));
  CHECK(bit_equal(generator.get_state(), state));

  torch::nn::Sequential net(torch::nn::Linear(6, 40), torch::nn::Dropout(0.5));
  const auto in = at::randn({6}).requires_grad_(true);
  const auto out = activation_checkpoint([net](const at::Tensor& z) { return net.ptr()->forward(z); }, in,
                                         {.modules = {net.ptr()}});
  net->eval();
  const auto bias = grad({out.sum()}, {net->parameters()[1]})[0];
  CHECK(bit_equal(bias.ne(0), out.detach().ne(0)));
  CHECK_FALSE(net->is_training());
  CHECK_FALSE(net->ptr(1)->is_training());
}

TEST_CASE("activation_checkpoint: functions that throw", "[activation_checkpoint]") {
  at::manual_seed(13);
  const auto x = leaf({3});
  const auto generator = at::detail::getDefaultCPUGenerator();
  const auto shared = std::make_shared<int>(0);  // the runs so far
  const auto throws_in = [&](int run) -> One {
    *shared = 0;
    return [shared, run](const at::Tensor& y) {
      const auto drawn = at::rand({3});
      if (++*shared == run) throw std::runtime_error("told to");
      return y * drawn;
    };
  };
  auto before = generator.get_state();
  CHECK_THROWS_AS(activation_checkpoint(throws_in(1), x), std::runtime_error);
  CHECK(bit_equal(generator.get_state(), before));

  const auto y = activation_checkpoint(throws_in(2), x);
  before = generator.get_state();
  CHECK_THROWS_AS(grad({y.sum()}, {x}, {}, /*retain_graph=*/true), std::runtime_error);
  CHECK(bit_equal(generator.get_state(), before));
  CHECK(at::autocast::is_autocast_cache_enabled());
  CHECK_WITHIN(grad({y.sum()}, {x})[0], (y / x).detach(), {1e-6, 0});  // the third run succeeds
}

TEST_CASE("activation_checkpoint: changes in place are refused", "[activation_checkpoint][errors]") {
  at::manual_seed(14);
  const std::string name = "activation_checkpoint: ";
  const auto weight = leaf({3}), x = leaf({3});
  const auto plain = at::randn({3});
  const CheckpointedFunction function = [weight](const std::vector<at::Tensor>& in) {
    return std::vector{in[0] * weight * in[1]};
  };
  const auto changing = [&](const at::Tensor& changed) {
    const auto y = activation_checkpoint(function, {x * 1.0, plain})[0];
    {
      const at::NoGradGuard no_grad;
      changed.mul_(2.0);
    }
    return value_error([&] { y.sum().backward(); });
  };
  CHECK(changing(plain) ==
        name + "input 1 was changed in place after the forward pass; the backward pass reads it");
  CHECK(changing(weight) == name +
                                "a parameter of shape (3,), which the function reads, was changed in place "
                                "after the forward pass; the backward pass reads it");
  CHECK(changing(at::zeros({2})) == "no error");
  CHECK(value_error([&] {
          activation_checkpoint(
              [](const std::vector<at::Tensor>& in) {
                in[1].add_(1.0);
                return std::vector{in[0] * in[1]};
              },
              std::vector{x, plain});
        }) == name + "expected a function that changes none of its inputs in place, but it changed input 1");
}

TEST_CASE("activation_checkpoint: a second run that differs is refused", "[activation_checkpoint][errors]") {
  at::manual_seed(15);
  const std::string name = "activation_checkpoint: ";
  const auto a = leaf({3}), b = leaf({3}), x = leaf({3});
  const auto run = std::make_shared<int>(0);
  const auto error = [&](const CheckpointedFunction& function) {
    *run = 0;
    const auto y = activation_checkpoint(function, std::vector{x});
    return value_error([&] { y[0].sum().backward(); });
  };
  using List = std::vector<at::Tensor>;
  CHECK(
      error([=](const List& in) { return List{in[0] * (++*run == 1 ? a : b)}; }) ==
      name +
          "expected the function to read the tensors that its first run read, got another one that requires "
          "a gradient in its second run");
  CHECK(error([=](const List& in) {
          return ++*run == 1 ? List{in[0] * a} : List{in[0] * a, in[0]};
        }) == name + "expected the function to return 1 tensors again in its second run, got 2");
  CHECK(error([=](const List& in) { return List{++*run == 1 ? in[0] * a : in[0].detach()}; }) ==
        name + "expected output 0 to require a gradient in the second run of the function, as in the first");
}

TEST_CASE("activation_checkpoint: bad arguments", "[activation_checkpoint][errors]") {
  const std::string name = "activation_checkpoint: expected ";
  const auto x = at::zeros({2});
  CHECK(value_error([&] { activation_checkpoint(One(), x); }) == name + "a function, got none");
  CHECK(value_error([&] { activation_checkpoint(CheckpointedFunction(), std::vector{x}); }) ==
        name + "a function, got none");
  const One same = [](const at::Tensor& y) { return y; };
  CHECK(value_error([&] { activation_checkpoint(same, x, {.generators = {at::Generator()}}); }) ==
        name + "generators to be a CPU generator, got an undefined one");
  CHECK(value_error([&] { activation_checkpoint(same, x, {.modules = {nullptr}}); }) ==
        name + "modules, got an empty pointer");
}

TEST_CASE("activation_checkpoint: without gradients the function runs once", "[activation_checkpoint]") {
  const auto runs = std::make_shared<int>(0);
  const One function = [runs](const at::Tensor& y) {
    ++*runs;
    return y * 2.0;
  };
  const auto x = leaf({3});
  {
    const at::NoGradGuard no_grad;
    CHECK_FALSE(activation_checkpoint(function, x).requires_grad());
  }
  {
    const c10::InferenceMode inference;
    activation_checkpoint(function, x);
  }
  CHECK_FALSE(activation_checkpoint(function, x.detach()).requires_grad());
  CHECK(*runs == 3);
}

TEST_CASE("activation_checkpoint: a recorder sees the first run alone", "[activation_checkpoint]") {
  at::manual_seed(16);
  const auto block = block_with_dropout();
  const auto x = leaf({1, 5, 16});
  AttentionRecorder recorder(*block);
  const auto y = activation_checkpoint([block](const at::Tensor& z) { return block.ptr()->forward(z); }, x);
  y.sum().backward();
  CHECK(recorder.calls().size() == 1);
}

TEST_CASE("activation_checkpoint: memory", "[activation_checkpoint]") {
  at::manual_seed(17);
  constexpr int64_t kSize = 1 << 16, kSteps = 40, kBytes = kSize * 4;
  const auto x = leaf({kSize});
  const One step = [](const at::Tensor& y) {
    auto z = y;
    for (int i = 0; i < 10; ++i) z = z.sin();  // keeps ten tensors
    return z;
  };
  const auto peak = [&](bool checkpoint) {
    const MemoryMeter meter;
    auto y = x;
    for (int64_t i = 0; i < kSteps; ++i) y = checkpoint ? activation_checkpoint(step, y) : step(y);
    y.sum().backward();
    auto leaf_of = x;
    leaf_of.mutable_grad().reset();
    return meter.peak();
  };
  CHECK(peak(false) > 10 * kSteps * kBytes);
  CHECK(peak(true) <
        (kSteps + 25) * kBytes + kSteps * 8192);  // an input and a generator's state for each step
}
