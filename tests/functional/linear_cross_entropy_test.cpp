// Tests of the loss that never holds all logits, against the composed loss in float64. CTest runs them a
// second time with ATEN_CPU_CAPABILITY=avx2, with which half types are multiplied in float32.

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/linear_cross_entropy.h>

#include "support/autocast.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/gradcheck.h"
#include "support/memory_meter.h"

using namespace attentive;
using namespace attentive::test;
using torch::autograd::grad;

namespace {

constexpr int64_t kIgnored = -100;

struct LossCall {
  at::Tensor hidden, weight, targets;
  LinearCrossEntropyOptions options = {};

  at::Tensor operator()() const { return linear_cross_entropy(hidden, weight, targets, options); }
  std::vector<at::Tensor> leaves() const {
    return options.bias.defined() && options.bias.requires_grad() ? std::vector{hidden, weight, options.bias}
                                                                  : std::vector{hidden, weight};
  }
};

LossCall draw_call(int64_t tokens, int64_t vocabulary, int64_t width, at::ScalarType type = at::kFloat) {
  const auto leaf = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).to(type).requires_grad_(true);
  };
  return {leaf({tokens, width}), leaf({vocabulary, width}), at::randint(vocabulary, {tokens}, at::kLong)};
}

LossCall cast(const LossCall& call, at::ScalarType type) {
  const auto leaf = [&](const at::Tensor& x) {
    return x.defined() ? x.detach().to(type).requires_grad_(x.requires_grad()) : x;
  };
  auto result = call;
  result.hidden = leaf(call.hidden);
  result.weight = leaf(call.weight);
  result.options.bias = leaf(call.options.bias);
  return result;
}

// The definition, with all logits at once. PyTorch computes what it has options for.
at::Tensor composed_loss(const LossCall& call) {
  const auto& options = call.options;
  const auto bias = options.bias.defined() ? std::optional(options.bias) : std::nullopt;
  auto logits = at::linear(call.hidden, call.weight, bias).reshape({-1, call.weight.size(0)});
  if (options.softcap) logits = (logits / *options.softcap).tanh() * *options.softcap;
  const auto targets = call.targets.reshape(-1).to(at::kLong);
  auto losses = at::cross_entropy_loss(logits, targets, {}, at::Reduction::None, options.ignore_index,
                                       options.label_smoothing);
  const auto counted = targets.ne(options.ignore_index);
  losses = losses + (options.z_loss * logits.logsumexp(1).square()).masked_fill(counted.logical_not(), 0.0);
  switch (options.reduction) {
    case LossReduction::None:
      return losses.reshape(call.targets.sizes());
    case LossReduction::Mean:
      return losses.sum() / counted.sum();
    default:
      return losses.sum();
  }
}

struct LossAndGradients {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;
};

LossAndGradients differentiate_loss(const at::Tensor& loss, const LossCall& call,
                                    const at::Tensor& incoming) {
  return {loss.detach(), grad({loss}, call.leaves(), {incoming.to(loss.scalar_type())})};
}

at::Tensor incoming_for(const LossCall& call) {
  return call.options.reduction == LossReduction::None ? at::rand(call.targets.sizes(), at::kDouble) + 0.5
                                                       : at::full({}, 1.75, at::kDouble);
}

// Compares the loss and all gradients with those of the composed call in float64, relative to the largest
// number of each tensor.
void check_exact(const LossCall& call, double tolerance) {
  const auto exact = cast(call, at::kDouble);
  const auto incoming = incoming_for(call);
  const auto want = differentiate_loss(composed_loss(exact), exact, incoming);
  const auto got = differentiate_loss(call(), call, incoming);
  CHECK(got.loss.scalar_type() == (call.hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
  const auto near = [&](const at::Tensor& a, const at::Tensor& b) {
    const auto largest = b.numel() > 0 ? b.abs().max().item<double>() : 0.0;
    return difference(a.to(at::kDouble), b, {0.0, tolerance * std::max(largest, 1e-30)});
  };
  CHECK(near(got.loss, want.loss) == "");
  for (size_t i = 0; i < want.gradients.size(); ++i) {
    INFO("gradient " << i << " of hidden, weight, bias");
    CHECK(got.gradients[i].scalar_type() == call.hidden.scalar_type());
    CHECK(near(got.gradients[i], want.gradients[i]) == "");
  }
}

using Change = std::pair<std::string, std::function<void(LossCall&)>>;

std::vector<Change> changes() {
  return {{"bias",
           [](LossCall& call) {
             call.options.bias = at::randn({call.weight.size(0)}, call.weight.options().requires_grad(false))
                                     .requires_grad_(true);
           }},
          {"ignored",
           [](LossCall& call) {
             call.targets = call.targets.masked_fill(at::rand(call.targets.sizes()).lt(0.4), kIgnored);
             call.targets.view(-1)[0] = 0;
           }},
          {"sum", [](LossCall& call) { call.options.reduction = LossReduction::Sum; }},
          {"none", [](LossCall& call) { call.options.reduction = LossReduction::None; }},
          {"smoothing", [](LossCall& call) { call.options.label_smoothing = 0.15; }},
          {"z_loss", [](LossCall& call) { call.options.z_loss = 0.03; }},
          {"softcap", [](LossCall& call) { call.options.softcap = 2.5; }}};
}

}  // namespace

TEST_CASE("linear_cross_entropy: sizes around the borders of chunks", "[linear_cross_entropy]") {
  at::manual_seed(1);
  for (const int64_t tokens : {1, 2, 255, 256, 257, 512, 700}) {
    for (const int64_t vocabulary : {1, 2, 37}) {
      INFO(tokens << " tokens, vocabulary " << vocabulary);
      check_exact(draw_call(tokens, vocabulary, 5, at::kDouble), 1e-12);
      check_exact(draw_call(tokens, vocabulary, 5), 1e-5);
    }
  }
  check_exact(draw_call(300, 5000, 3), 1e-5);  // rows of a chunk in several blocks
}

TEST_CASE("linear_cross_entropy: every option and pair of options", "[linear_cross_entropy]") {
  at::manual_seed(2);
  const auto all = changes();
  for (size_t first = 0; first < all.size(); ++first) {
    for (size_t second = first; second < all.size(); ++second) {
      INFO(all[first].first << ", " << all[second].first);
      auto call = draw_call(300, 11, 4, at::kDouble);
      all[first].second(call);
      all[second].second(call);
      check_exact(call, 1e-12);
      check_exact(cast(call, at::kFloat), 1e-5);
    }
  }
}

TEST_CASE("linear_cross_entropy: half types", "[linear_cross_entropy][short]") {
  at::manual_seed(3);
  const auto type = GENERATE(at::kBFloat16, at::kHalf);
  INFO(c10::toString(type));
  for (const auto& [name, change] : changes()) {
    INFO(name);
    auto call = draw_call(600, 40, 8, type);
    change(call);
    check_exact(call, 3.0 * unit_of(type));
  }
}

TEST_CASE("linear_cross_entropy: sums over chunks keep the precision of float32",
          "[linear_cross_entropy][short]") {
  // 64 chunks with the same gradient of weight: a sum in bfloat16 would be off by several percent.
  at::manual_seed(4);
  auto call = draw_call(256, 6, 4, at::kBFloat16);
  call.hidden = call.hidden.detach().repeat({64, 1}).requires_grad_(true);
  call.targets = call.targets.repeat({64});
  call.options.reduction = LossReduction::Sum;
  check_exact(call, 1.5 * unit_of(at::kBFloat16));
}

TEST_CASE("linear_cross_entropy: the derivatives", "[linear_cross_entropy]") {
  at::manual_seed(5);
  for (const auto& [name, change] : changes()) {
    INFO(name);
    auto call = draw_call(7, 5, 3, at::kDouble);
    change(call);
    call.options.z_loss += 0.01;
    const auto loss_of = [&](const std::vector<at::Tensor>& x) {
      auto changed = call;
      changed.hidden = x[0];
      changed.weight = x[1];
      if (x.size() > 2) changed.options.bias = x[2];
      return changed();
    };
    CHECK(gradcheck(loss_of, call.leaves()) == "");
    const auto seed = at::rand(call().sizes(), at::kDouble);
    const auto first_derivative = [&](std::vector<at::Tensor> x) {
      const at::AutoGradMode gradients(true);  // also while gradcheck perturbs the inputs
      for (auto& leaf : x) leaf = leaf.requires_grad() ? leaf : leaf.detach().requires_grad_(true);
      const auto found = grad({loss_of(x)}, x, {seed}, true, /*create_graph=*/true);
      auto total = found[0].sin().sum();
      for (size_t i = 1; i < found.size(); ++i) total = total + (found[i] * found[i]).sum();
      return total;
    };
    CHECK(gradcheck(first_derivative, call.leaves()) == "");
  }
}

TEST_CASE("linear_cross_entropy: create_graph and repeated backward passes give the same gradients",
          "[linear_cross_entropy]") {
  at::manual_seed(6);
  for (const auto reduction : {LossReduction::Mean, LossReduction::Sum, LossReduction::None}) {
    auto call = draw_call(400, 9, 4, at::kDouble);
    call.options.reduction = reduction;
    call.options.softcap = 3.0;
    const auto incoming = incoming_for(call);
    const auto loss = call();
    const auto first = grad({loss}, call.leaves(), {incoming}, /*retain_graph=*/true);
    const auto weight_alone = grad({loss}, {call.weight}, {incoming}, /*retain_graph=*/true);
    const auto with_graph = grad({loss}, call.leaves(), {incoming}, true, /*create_graph=*/true);
    const auto last = grad({loss}, call.leaves(), {incoming * 2.0});
    CHECK(with_graph[0].requires_grad());
    CHECK(bit_equal(first[1], weight_alone[0]));
    for (size_t i = 0; i < first.size(); ++i) {
      CHECK_WITHIN(with_graph[i].detach(), first[i], {1e-12, 1e-14});
      CHECK_WITHIN(last[i], first[i] * 2.0, {1e-12, 1e-14});
    }
    CHECK_THROWS(loss.sum().backward());  // the graph is gone
  }
}

TEST_CASE("linear_cross_entropy: gradients accumulate into leaves", "[linear_cross_entropy]") {
  at::manual_seed(7);
  const auto call = draw_call(300, 9, 4);
  call().backward();
  const auto once = call.weight.grad().clone();
  call().backward();
  CHECK_WITHIN(call.weight.grad(), once * 2.0, {1e-6, 1e-7});
}

TEST_CASE("linear_cross_entropy: only gradients that are wanted", "[linear_cross_entropy]") {
  at::manual_seed(8);
  const auto all = draw_call(300, 9, 4);
  const auto want = differentiate_loss(all(), all, at::ones({}));
  auto frozen_weight = all, frozen_hidden = all;
  frozen_weight.weight = all.weight.detach();
  frozen_hidden.hidden = all.hidden.detach();
  CHECK(bit_equal(grad({frozen_weight()}, {all.hidden})[0], want.gradients[0]));
  CHECK(bit_equal(grad({frozen_hidden()}, {all.weight})[0], want.gradients[1]));
  const at::NoGradGuard no_grad;
  CHECK_FALSE(all().requires_grad());
  CHECK(bit_equal(all(), want.loss));
}

TEST_CASE("linear_cross_entropy: one tensor as hidden and weight", "[linear_cross_entropy]") {
  at::manual_seed(9);
  auto call = draw_call(6, 6, 4, at::kDouble);
  call.hidden = call.weight;
  const auto want = grad({composed_loss(call)}, {call.weight})[0];
  CHECK_WITHIN(grad({call()}, {call.weight})[0], want, {1e-12, 1e-14});
  CHECK_WITHIN(grad({call()}, {call.weight}, {}, true, true)[0].detach(), want, {1e-12, 1e-14});
}

TEST_CASE("linear_cross_entropy: leading dimensions and strides", "[linear_cross_entropy]") {
  at::manual_seed(10);
  auto flat = draw_call(24, 7, 4, at::kDouble);
  auto call = flat;
  call.hidden = flat.hidden.detach().view({2, 3, 4, 4}).transpose(0, 1).requires_grad_(true);
  call.targets = flat.targets.view({2, 3, 4}).transpose(0, 1).to(at::kInt);
  call.weight = at::randn({4, 7}, at::kDouble).t().requires_grad_(true);
  for (const auto reduction : {LossReduction::Mean, LossReduction::None}) {
    call.options.reduction = reduction;
    CHECK(call().sizes() ==
          (reduction == LossReduction::None ? at::IntArrayRef({3, 2, 4}) : at::IntArrayRef()));
    check_exact(call, 1e-12);
  }
  LossCall one{at::randn({4}), at::randn({7, 4}), at::full({}, 3, at::kLong)};
  CHECK_WITHIN(one(), at::cross_entropy_loss(one.hidden.matmul(one.weight.t()), one.targets), {1e-6, 1e-6});
}

TEST_CASE("linear_cross_entropy: ignored tokens count for nothing", "[linear_cross_entropy]") {
  at::manual_seed(11);
  auto call = draw_call(300, 9, 4);
  call.options.ignore_index = 3;
  call.targets.narrow(0, 100, 150).fill_(3);
  {
    const at::NoGradGuard no_grad;
    call.hidden.narrow(0, 100, 150).fill_(kNaN);
  }
  for (const auto reduction : {LossReduction::Mean, LossReduction::Sum, LossReduction::None}) {
    call.options.reduction = reduction;
    auto counted = call;
    const auto places = call.targets.ne(3).nonzero().squeeze(1);
    counted.hidden = call.hidden.detach().index_select(0, places).requires_grad_(true);
    counted.targets = call.targets.index_select(0, places);
    const auto got = call(), want = counted();
    CHECK(bit_equal(
        got.detach().reshape(-1).index_select(0, reduction == LossReduction::None ? places : at::tensor(0)),
        want.detach().reshape(-1)));
    const auto gradients = grad({got.sum()}, call.leaves()), wanted = grad({want.sum()}, counted.leaves());
    CHECK(bit_equal(gradients[1], wanted[1]));
    CHECK(bit_equal(gradients[0].index_select(0, places), wanted[0]));
    CHECK(gradients[0].narrow(0, 100, 150).eq(0).all().item<bool>());
  }
}

TEST_CASE("linear_cross_entropy: no counted token", "[linear_cross_entropy]") {
  at::manual_seed(12);
  for (const int64_t tokens : {0, 5}) {
    auto call = draw_call(tokens, 9, 4);
    call.targets.fill_(kIgnored);
    for (const auto reduction : {LossReduction::Mean, LossReduction::Sum, LossReduction::None}) {
      call.options.reduction = reduction;
      const auto loss = call(), want = composed_loss(call);
      CHECK(bit_equal(loss.detach(), want.detach()));
      CHECK(loss.isnan().any().item<bool>() == (reduction == LossReduction::Mean));
      for (const auto& gradient : grad({loss.sum()}, call.leaves())) CHECK(gradient.eq(0).all().item<bool>());
    }
  }
}

TEST_CASE("linear_cross_entropy: large logits and -inf", "[linear_cross_entropy]") {
  at::manual_seed(13);
  auto call = draw_call(40, 9, 4);
  call.hidden = (call.hidden.detach() * 1e4).requires_grad_(true);
  check_exact(call, 1e-5);
  auto bias = at::zeros({9});
  bias[5] = -std::numeric_limits<double>::infinity();  // a token that is never predicted
  call.options.bias = bias;
  call.targets.masked_fill_(call.targets.eq(5), 4);
  check_exact(call, 1e-5);
  // A confident prediction keeps its digits: the loss is log1p(exp(-30)).
  const LossCall sure{at::ones({1, 1}), at::tensor({1000.0F, 970.0F}).unsqueeze(1),
                      at::zeros({1}, at::kLong)};
  CHECK(sure().item<double>() >= 0.0);
  CHECK(sure().item<double>() < 1e-6);
}

TEST_CASE("linear_cross_entropy: a loss beyond float16, and one of more digits than bfloat16",
          "[linear_cross_entropy]") {
  at::manual_seed(17);
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    auto call = cast(draw_call(5000, 9, 4), type);
    call.hidden = (call.hidden.detach() * 40).requires_grad_(true);
    auto exact = cast(call, at::kDouble);
    for (const auto reduction : {LossReduction::Sum, LossReduction::Mean}) {
      call.options.reduction = exact.options.reduction = reduction;
      const auto want = composed_loss(exact).item<double>();
      CHECK((reduction == LossReduction::Mean || want > 65504));
      CHECK(std::abs(call().item<double>() - want) < (type == at::kHalf ? 1e-4 : 1e-3) * want);
    }
  }
}

TEST_CASE("linear_cross_entropy: autocast", "[linear_cross_entropy][short]") {
  at::manual_seed(14);
  const auto type = GENERATE(at::kBFloat16, at::kHalf);
  const auto call = draw_call(600, 40, 8);
  const auto want = differentiate_loss(composed_loss(call), call, at::ones({}));
  at::Tensor loss, reference;
  {
    const CpuAutocast autocast(type);
    loss = call();
    reference = composed_loss(call);
  }
  CHECK(loss.scalar_type() == at::kFloat);
  CHECK(reference.scalar_type() == at::kFloat);
  const auto got = differentiate_loss(loss, call, at::ones({}));
  CHECK_WITHIN(got.loss, want.loss, {2.0 * unit_of(type), 0});
  for (size_t i = 0; i < 2; ++i) {
    CHECK(got.gradients[i].scalar_type() == at::kFloat);
    CHECK_WITHIN(got.gradients[i], want.gradients[i],
                 {0, 2.0 * unit_of(type) * want.gradients[i].abs().max().item<double>()});
  }
  // Hidden of another dtype, as a layer before it returns under autocast; float64 is left alone.
  {
    const CpuAutocast autocast(type);
    const auto mixed = linear_cross_entropy(call.hidden.detach().to(type), call.weight, call.targets);
    CHECK(mixed.scalar_type() == at::kFloat);
    CHECK_WITHIN(mixed.detach(), loss.detach(), {unit_of(type), 0});
    check_exact(draw_call(50, 7, 3, at::kDouble), 1e-12);
  }
}

TEST_CASE("linear_cross_entropy: equal bits for a number of threads", "[linear_cross_entropy]") {
  const auto before = at::get_num_threads();
  at::manual_seed(15);
  const auto call = draw_call(700, 3000, 32);
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const auto first = differentiate_loss(call(), call, at::ones({})),
               second = differentiate_loss(call(), call, at::ones({}));
    CHECK(bit_equal(first.loss, second.loss));
    for (size_t i = 0; i < 2; ++i) CHECK(bit_equal(first.gradients[i], second.gradients[i]));
  }
  at::set_num_threads(before);
}

TEST_CASE("linear_cross_entropy: memory", "[linear_cross_entropy]") {
  at::manual_seed(16);
  constexpr int64_t kMany = 4096, kWords = 6000, kWidth = 8;
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const auto call = draw_call(kMany, kWords, kWidth, type);
  const auto peak = [&](auto loss_of) {
    const MemoryMeter meter;
    loss_of(call).backward();
    call.hidden.mutable_grad().reset();
    call.weight.mutable_grad().reset();
    return meter.peak();
  };
  const auto whole = peak([](const LossCall& some) { return composed_loss(some); });
  const auto chunks = peak([](const LossCall& some) { return some(); });
  // Everything that grows with tokens · vocabulary is left out, whatever the number of threads.
  CHECK(chunks * 8 <= whole);
  CHECK(chunks <= 3 * 256 * kWords * 4 + 8 * (kMany + kWords) * kWidth * 4);
  {
    const at::NoGradGuard no_grad;
    const MemoryMeter meter;
    call();
    CHECK(meter.peak() <= 3 * 256 * kWords * 4);
  }
}

TEST_CASE(
    "linear_cross_entropy: targets may be refilled, inputs may not change before a backward pass that "
    "reads them",
    "[linear_cross_entropy]") {
  at::manual_seed(17);
  auto call = draw_call(30, 9, 4);
  call.options.reduction = LossReduction::None;
  const auto want = grad({call().sum()}, call.leaves());
  const auto refilled = call();
  const auto before = call.targets.clone();
  call.targets.zero_();
  CHECK(bit_equal(grad({refilled.sum()}, call.leaves())[1], want[1]));
  call.targets.copy_(before);
  const auto changed = call();
  {
    const at::NoGradGuard no_grad;
    call.weight.mul_(2.0);
  }
  CHECK_THROWS(grad({changed.sum()}, call.leaves()));
}

TEST_CASE("linear_cross_entropy: InferenceMode", "[linear_cross_entropy]") {
  at::manual_seed(18);
  const auto call = draw_call(30, 9, 4);
  const auto want = call().detach();
  {
    const c10::InferenceMode inference;
    CHECK(bit_equal(call(), want));
  }
  auto later = call;
  {
    const c10::InferenceMode inference;
    later.targets = call.targets.clone();
  }
  CHECK(grad({later()}, {later.weight})[0].defined());
}

TEST_CASE("linear_cross_entropy: errors", "[linear_cross_entropy][errors]") {
  const auto good = draw_call(5, 9, 4);
  const auto value = [&](auto change) {
    auto call = good;
    change(call);
    return value_error([&] { call(); });
  };
  const auto type = [&](auto change) {
    auto call = good;
    change(call);
    return type_error([&] { call(); });
  };
  const std::string name = "linear_cross_entropy: expected ";
  CHECK(value([](LossCall& c) { c.hidden.reset(); }) == name + "hidden to be a tensor, got an undefined one");
  CHECK(value([](LossCall& c) { c.weight.reset(); }) == name + "weight to be a tensor, got an undefined one");
  CHECK(value([](LossCall& c) { c.targets.reset(); }) ==
        name + "targets to be a tensor, got an undefined one");
  CHECK(value([](LossCall& c) { c.weight = c.weight[0]; }) ==
        name + "weight of shape (vocabulary, width), got (4,)");
  CHECK(value([](LossCall& c) {
          c.weight = at::zeros({0, 4});
        }) == name + "weight of shape (vocabulary, width), got (0, 4)");
  CHECK(value([](LossCall& c) {
          c.hidden = at::zeros({5, 3});
        }) == name + "hidden of shape (..., 4), got (5, 3)");
  CHECK(value([](LossCall& c) { c.hidden = at::zeros({}); }) == name + "hidden of shape (..., 4), got ()");
  CHECK(value([](LossCall& c) { c.targets = at::zeros({4}, at::kLong); }) ==
        name + "targets of shape (5,), got (4,)");
  CHECK(value([](LossCall& c) { c.targets = c.targets.unsqueeze(0); }) ==
        name + "targets of shape (5,), got (1, 5)");
  CHECK(type([](LossCall& c) { c.targets = at::zeros({5}); }) ==
        name + "targets as integers, got Float tensor of shape (5,)");
  CHECK(type([](LossCall& c) { c.targets = at::zeros({5}, at::kBool); }) ==
        name + "targets as integers, got Bool tensor of shape (5,)");
  CHECK(value([](LossCall& c) { c.targets[2] = 9; }) == name + "targets in [0, 9) or ignore_index, got 9");
  CHECK(value([](LossCall& c) {
          c.targets = c.targets.clone();
          c.targets[2] = -1;
        }) == name + "targets in [0, 9) or ignore_index, got -1");
  CHECK(type([](LossCall& c) {
          c.hidden = at::zeros({5, 4}, at::kLong);
        }) == name + "hidden of dtype Double, Float, BFloat16 or Half, got Long tensor of shape (5, 4)");
  CHECK(type([](LossCall& c) {
          c.weight = at::zeros({9, 4}, at::kDouble);
        }) == name + "weight of dtype Float like hidden, got Double");
  CHECK(type([](LossCall& c) {
          c.weight = at::zeros({9, 4}, at::kBFloat16);
        }) == name + "weight of dtype Float like hidden, got BFloat16");
  CHECK(type([](LossCall& c) { c.options.bias = at::zeros({9}, at::kDouble); }) ==
        name + "bias of dtype Float like hidden, got Double");
  CHECK(value([](LossCall& c) { c.options.bias = at::zeros({8}); }) == name + "bias of shape (9,), got (8,)");
  CHECK(value([](LossCall& c) { c.options.label_smoothing = 1.5; }) ==
        name + "label_smoothing in [0, 1], got 1.5");
  CHECK(value([](LossCall& c) { c.options.label_smoothing = kNaN; }) ==
        name + "label_smoothing in [0, 1], got nan");
  CHECK(value([](LossCall& c) { c.options.z_loss = -1.0; }) ==
        name + "z_loss to be finite and not negative, got -1");
  CHECK(value([](LossCall& c) { c.options.softcap = 0.0; }) == name + "softcap > 0, got 0");
  CHECK(value([](LossCall& c) { c.options.reduction = static_cast<LossReduction>(7); }) ==
        name + "a reduction of LossReduction, got 7");
}
