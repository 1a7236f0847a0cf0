// Tests of the products of projections. CTest runs them a second time with ATEN_CPU_CAPABILITY=avx2, with
// which half types are multiplied in float32.

#include "functional/linear.h"

#include <memory>
#include <string>
#include <thread>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <attentive/modules/multi_head_attention.h>
#include <attentive/notebooks/toy_notebook.h>
#include <attentive/parity/compare.h>

#include "functional/adapters.h"
#include "kernels/gemm/products.h"
#include "kernels/simd/selection.h"
#include "modules/projection.h"
#include "support/autocast.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

namespace {

at::ScalarType half_type() {
  return GENERATE(at::kBFloat16, at::kHalf);
}

at::Tensor exact_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble));
}

// Half a unit in the last place of a half type for the largest number of x: the error of a result that was
// rounded once.
double rounding(const at::Tensor& x, at::ScalarType type) {
  return x.abs().max().item<double>() * unit_of(type) / 2.0;
}

// Whether a sum of so many products is rounded once. If LibTorch multiplies on 64-bit ARM, oneDNN stores
// partial sums of more than 512 products in bfloat16; there the result must equal PyTorch's.
bool rounds_once([[maybe_unused]] const at::Tensor& x, [[maybe_unused]] int64_t products) {
#ifdef __aarch64__
  return widens_products(x) || products <= 512;
#else
  return true;
#endif
}

}  // namespace

TEST_CASE("linear: half types equal doubles up to their rounding", "[linear][short]") {
  const auto type = half_type();
  INFO(c10::toString(type));
  at::manual_seed(1);
  const auto tokens = GENERATE(1, 40, 4150);  // a few rows; a block of them; several blocks
  const auto x = at::randn({2, tokens, 96}).to(type), weight = at::randn({50, 96}).to(type),
             bias = at::randn({50}).to(type);
  const auto want = exact_linear(x, weight, bias);
  const auto got = attentive::linear(x, weight, bias);
  CHECK(got.scalar_type() == type);
  // LibTorch rounds once more when it adds the bias.
  CHECK(largest_error(got, want) <= (widens_products(x) ? 1.0 : 2.0) * rounding(want, type));
  CHECK(largest_error(attentive::linear(x, weight), want - bias.to(at::kDouble)) <= rounding(want, type));
  const at::NoGradGuard no_grad;
  CHECK(largest_error(attentive::linear(x, weight, bias), want) <=
        (widens_products(x) ? 1.0 : 2.0) * rounding(want, type));
  CHECK(largest_error(matrix_product(x[0], weight.t()), exact_linear(x[0], weight, at::zeros({50}))) <=
        rounding(want, type));
}

TEST_CASE("linear: gradients of half types have their dtype and value", "[linear][short]") {
  const auto type = half_type();
  INFO(c10::toString(type));
  at::manual_seed(2);
  const auto rows = GENERATE(30, 8300);
  auto x = at::randn({rows, 24}).to(type).requires_grad_();
  auto weight = at::randn({20, 24}).to(type).requires_grad_();
  auto bias = at::randn({20}).to(type).requires_grad_();
  const auto grad = at::randn({rows, 20}).to(type);
  attentive::linear(x, weight, bias).backward(grad);
  const auto g = grad.to(at::kDouble);
  const auto check = [type](const at::Tensor& leaf, const at::Tensor& want) {
    CHECK(leaf.grad().scalar_type() == type);
    CHECK(largest_error(leaf.grad(), want) <= rounding(want, type));
  };
  check(x, g.mm(weight.detach().to(at::kDouble)));
  check(bias, g.sum(0));
  if (rounds_once(x, rows)) {
    check(weight, g.t().mm(x.detach().to(at::kDouble)));
  } else {
    const auto got = weight.grad().clone();
    weight.mutable_grad().reset();
    at::linear(x, weight, bias).backward(grad);
    CHECK(bit_equal(got, weight.grad()));
  }
}

TEST_CASE("linear: gradients of half types can be differentiated", "[linear][short]") {
  const auto type = half_type();
  INFO(c10::toString(type));
  at::manual_seed(4);
  auto x = at::randn({30, 24}).to(type).requires_grad_();
  auto weight = at::randn({20, 24}).to(type).requires_grad_();
  const auto grad = at::randn({30, 20}).to(type);
  const auto first = torch::autograd::grad({attentive::linear(x, weight)}, {x}, {grad}, std::nullopt,
                                           /*create_graph=*/true)[0];
  first.backward(at::ones_like(first));
  const auto want = grad.to(at::kDouble).sum(0).unsqueeze(1).expand({20, 24});
  CHECK(largest_error(weight.grad(), want) <= rounding(want, type));
}

TEST_CASE("linear: the sum over rows is that of doubles", "[linear][short]") {
  const auto type = half_type();
  INFO(c10::toString(type));
  at::manual_seed(5);
  const auto a = at::randn({8300, 20}).to(type), b = at::randn({8300, 24}).to(type);
  const at::AutoGradMode mode(GENERATE(false, true));
  const auto want = a.to(at::kDouble).t().mm(b.to(at::kDouble));
  if (rounds_once(a, a.size(0)))
    CHECK(largest_error(sum_of_rows(a, b), want) <= rounding(want, type));
  else
    CHECK(bit_equal(sum_of_rows(a, b), at::mm(a.t(), b)));
  CHECK(largest_error(sum_of_rows(a.to(at::kFloat), b.to(at::kFloat)), want) <= rounding(want, type) / 100);
}

TEST_CASE("linear: only half types on the CPU are widened, and not under autocast", "[linear][short]") {
  const auto type = half_type();
  const auto x = at::randn({4, 4});
  CHECK_FALSE(widens_products(x));
  CHECK_FALSE(widens_products(x.to(at::kDouble)));
  CHECK_FALSE(widens_products(x.to(type).to(at::kMeta)));
  const bool widens = widens_products(x.to(type));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  CHECK_FALSE(widens_products(x.to(type)));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK(widens_products(x.to(type)) == widens);
}

TEST_CASE("linear: autocast to a half type multiplies in float32 where that is faster", "[linear][short]") {
  const auto type = half_type();
  at::manual_seed(4);
  const auto leaf = [](at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(true); };
  const auto x = leaf({3, 11, 40}), weight = leaf({25, 40}), bias = leaf({25});
  const auto direction = at::randn({3, 11, 25}).to(type);
  const auto gradients = [&](const at::Tensor& y, bool create_graph) {
    return torch::autograd::grad({y}, {x, weight, bias}, {direction.to(y.scalar_type())}, true, create_graph);
  };
  const auto rounded = [&](const at::Tensor& tensor) { return tensor.to(type).to(at::kDouble); };
  const auto exact = at::linear(rounded(x), rounded(weight), rounded(bias));
  const auto want = gradients(exact, false);
  const bool in_scope = GENERATE(false, true);  // whether the backward pass runs under autocast too
  const auto scope = std::make_unique<CpuAutocast>(type);
  const auto y = linear(x, weight, bias);
  CHECK(y.scalar_type() == type);
  CHECK(largest_error(y, exact) <= rounding(exact, type));
  CHECK((y.grad_fn()->name().find("WidenedLinear") != std::string::npos) == widens_products(type));
  const auto check = [&] {
    for (const bool create_graph : {false, true}) {
      const auto got = gradients(y, create_graph);
      for (size_t i = 0; i < 3; ++i) {
        INFO("gradient " << i << " of x, weight, bias");
        CHECK(got[i].scalar_type() == at::kFloat);
        CHECK(largest_error(got[i], want[i]) <= 2 * rounding(want[i], type));
      }
    }
  };
  if (in_scope) check();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  if (!in_scope) check();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  // A float64 weight is an error of at::linear's, on most CPUs.
  const auto throws = [&](const auto& multiply) {
    try {
      multiply(x, weight.to(at::kDouble), bias);
      return false;
    } catch (const c10::Error&) {
      return true;
    }
  };
  CHECK(throws(linear) == throws([](const auto&... tensors) { return at::linear(tensors...); }));
  CHECK(linear(x.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble)).scalar_type() == at::kDouble);
}

#if defined(__x86_64__)
TEST_CASE("linear: bfloat16 is widened wherever attention's own products are", "[linear][short]") {
  namespace cpu = kernels::cpu;
  const auto x = at::randn({4, 4}).to(at::kBFloat16);
  for (const auto* limit : {"", "avx512", "avx2", "default"}) {
    INFO("limit " << limit);
    const cpu::SelectionGuard guard(cpu::select(this_cpu(), limit));
    CHECK(widens_products(x) == !cpu::has_gemm_bf16());
  }
}

TEST_CASE("linear: float16 is widened wherever LibTorch has no fast product", "[linear][short]") {
  namespace cpu = kernels::cpu;
  const auto x = at::randn({4, 4}).to(at::kHalf);
  for (const auto* limit : {"", "avx512", "avx2", "default"}) {
    INFO("limit " << limit);
    const cpu::SelectionGuard guard(cpu::select(this_cpu(), limit));
    CHECK(widens_products(x) == (!this_cpu().avx512_fp16 || *limit != 0));
  }
}
#endif

TEST_CASE("linear: a training step of a module of a half type has the gradients of doubles",
          "[linear][short]") {
  const auto type = half_type();
  at::manual_seed(3);
  MultiHeadAttention module(32, 32, /*context_length=*/0, /*dropout=*/0.0, /*num_heads=*/4);
  module->to(type);
  MultiHeadAttention exact(32, 32, 0, 0.0, 4);
  exact->to(at::kDouble);
  {
    const at::NoGradGuard no_grad;
    auto targets = exact->named_parameters();
    for (const auto& item : module->named_parameters()) targets[item.key()].copy_(item.value());
  }
  const auto x = at::randn({2, 40, 32}).to(type);
  module->forward(x).sum().backward();
  exact->forward(x.to(at::kDouble)).sum().backward();
  const auto want = exact->named_parameters();
  for (const auto& item : module->named_parameters()) {
    INFO(item.key());
    CHECK(difference(item.value().grad(), want[item.key()].grad(), tolerance_of(type, true)) == "");
  }
}

// Tests of what adapters add to projections, against the dense formula.

namespace {

// An adapter that leaves the table when it goes out of scope.
class Entered {
 public:
  Entered(int64_t rank, int64_t features, int64_t outputs, at::ScalarType type)
      : low_rank_(std::make_shared<LowRank>()) {
    low_rank_->a = at::randn({rank, features}, type).requires_grad_(true);
    low_rank_->b = at::randn({outputs, rank}, type).requires_grad_(true);
    low_rank_->scale = 0.75;
  }
  ~Entered() { remove_adapter(*low_rank_); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

  void on(const at::Tensor& weight, int64_t first = 0, int64_t first_of_b = 0, int64_t count = 0) const {
    put_adapter(weight, {low_rank_, first, first_of_b, count == 0 ? weight.size(0) : count});
  }
  LowRank& operator*() const { return *low_rank_; }
  at::Tensor dense(int64_t first = 0, int64_t count = 0) const {
    const auto b = count == 0 ? low_rank_->b : low_rank_->b.narrow(0, first, count);
    return at::mm(b, low_rank_->a) * low_rank_->scale;
  }
  std::vector<at::Tensor> leaves(const at::Tensor& x) const { return {x, low_rank_->a, low_rank_->b}; }

 private:
  std::shared_ptr<LowRank> low_rank_;
};

void check_gradients(const at::Tensor& got, const at::Tensor& want, const std::vector<at::Tensor>& leaves) {
  CHECK_WITHIN(got, want, {1e-12, 1e-12});
  const auto weights = at::randn(got.sizes(), got.options());
  const auto found = torch::autograd::grad({(got * weights).sum()}, leaves),
             expected = torch::autograd::grad({(want * weights).sum()}, leaves);
  for (size_t i = 0; i < leaves.size(); ++i) CHECK_WITHIN(found[i], expected[i], {1e-12, 1e-12});
}

at::Tensor frozen(at::IntArrayRef sizes, at::ScalarType type = at::kDouble) {
  return at::randn(sizes, type);
}

}  // namespace

TEST_CASE("adapters: a projection and its gradients equal the dense formula", "[adapters]") {
  at::manual_seed(1);
  const auto x = at::randn({2, 5, 6}, at::kDouble).requires_grad_(true);
  const auto weight = frozen({8, 6}), bias = frozen({8});
  const Entered adapter(3, 6, 8, at::kDouble);
  const auto without = attentive::linear(x, weight, bias);
  adapter.on(weight);
  check_gradients(attentive::linear(x, weight, bias), at::linear(x, weight + adapter.dense(), bias),
                  adapter.leaves(x));
  (*adapter).merged = true;
  CHECK(attentive::linear(x, weight, bias).equal(without));
  (*adapter).merged = false;
  remove_adapter(*adapter);
  CHECK(attentive::linear(x, weight, bias).equal(without));
  CHECK(adapters_of(weight).empty());
}

TEST_CASE("adapters: one adapter of three weights, three adapters of one", "[adapters]") {
  at::manual_seed(2);
  const auto x = at::randn({2, 5, 6}, at::kDouble).requires_grad_(true);
  SECTION("rows of B belong to their weight") {
    const at::Tensor weights[] = {frozen({4, 6}), frozen({2, 6}), frozen({2, 6})}, none;
    const Entered adapter(3, 6, 8, at::kDouble);
    adapter.on(weights[0], 0, 0, 4);
    adapter.on(weights[1], 0, 4, 2);
    adapter.on(weights[2], 0, 6, 2);
    const auto got = linears(x, {{weights[0], none}, {weights[1], none}, {weights[2], none}});
    const auto want = at::linear(x, at::cat({weights[0], weights[1], weights[2]}) + adapter.dense());
    check_gradients(at::cat(got, -1), want, adapter.leaves(x));
  }
  SECTION("a weight's rows belong to their adapter, and others to none") {
    const auto weight = frozen({9, 6});
    const Entered first(3, 6, 3, at::kDouble), last(2, 6, 3, at::kDouble);
    first.on(weight, 0, 0, 3);
    last.on(weight, 6, 0, 3);
    const auto zeros = at::zeros({3, 6}, at::kDouble);
    const auto want = at::linear(x, weight + at::cat({first.dense(), zeros, last.dense()}));
    check_gradients(attentive::linear(x, weight), want, {x, (*first).a, (*first).b, (*last).a, (*last).b});
  }
}

TEST_CASE("adapters: queries, keys and values together", "[adapters]") {
  at::manual_seed(3);
  const bool gradients = GENERATE(true, false);
  const auto type = at::kDouble;
  std::vector<torch::nn::Linear> layers{torch::nn::Linear(6, 4), torch::nn::Linear(6, 4),
                                        torch::nn::Linear(6, 4)};
  for (auto& layer : layers) {
    layer->to(type);
    for (auto& parameter : layer->parameters()) parameter.set_requires_grad(false);
  }
  const auto x = at::randn({2, 5, 6}, type).requires_grad_(gradients);
  const at::AutoGradMode mode(gradients);
  const Entered adapter(3, 6, 8, type);
  adapter.on(layers[0]->weight, 0, 0, 4);
  adapter.on(layers[2]->weight, 0, 4, 4);
  const auto heads = project_heads({layers[0], layers[1], layers[2]}, x, 2);
  const auto flat = [&](size_t i) { return heads[i].transpose(1, 2).flatten(2); };
  const auto want = at::linear(x, layers[0]->weight + adapter.dense(0, 4), layers[0]->bias);
  if (gradients) {
    check_gradients(flat(0), want, {x, (*adapter).a});
  } else {
    CHECK_WITHIN(flat(0), want, {1e-12, 1e-12});
  }
  CHECK_WITHIN(flat(1), at::linear(x, layers[1]->weight, layers[1]->bias), {1e-12, 1e-12});
  CHECK_WITHIN(flat(2), at::linear(x, layers[2]->weight + adapter.dense(4, 4), layers[2]->bias),
               {1e-12, 1e-12});
}

TEST_CASE("adapters: few rows without gradients", "[adapters]") {
  at::manual_seed(4);
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  INFO(c10::toString(type));
  const at::NoGradGuard no_grad;
  const auto x = at::randn({1, 3, 64}).to(type), weight = at::randn({32, 64}).div(8).to(type),
             up = at::randn({32, 64}).div(8).to(type);
  const at::Tensor none;
  const Entered adapter(4, 64, 32, at::kFloat);
  adapter.on(weight);
  const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kFloat); };
  const auto want = at::linear(wide(x), wide(weight) + adapter.dense());
  const attentive::Tolerance tolerance{type == at::kFloat ? 1e-5 : 2e-2, type == at::kFloat ? 1e-5 : 2e-2};
  const auto check = [&](const at::Tensor& got, const at::Tensor& expected) {
    CHECK(got.scalar_type() == type);
    CHECK(difference(wide(got), expected, tolerance).empty());
  };
  check(attentive::linear(x, weight), want);
  const auto both = linears(x, {{weight, none}, {up, none}});
  check(both[0], want);
  check(both[1], at::linear(wide(x), wide(up)));
  // The caller then computes the function of `linear`.
  CHECK(!fused_linear(LinearFunction::Silu, x, {weight, none}).defined());
  CHECK(!fused_gated_linear(LinearFunction::Silu, x, {weight, none}, {up, none}).defined());
  CHECK(!fused_gated_linear(LinearFunction::Silu, x, {up, none}, {weight, none}).defined());
  const c10::InferenceMode inference;
  check(attentive::linear(x, weight), want);
}

TEST_CASE("adapters: dropout in training only, once for weights that share an adapter", "[adapters]") {
  at::manual_seed(5);
  const auto x = at::randn({2, 40, 6});
  const auto first = frozen({4, 6}, at::kFloat), second = frozen({4, 6}, at::kFloat), none = at::Tensor();
  const Entered adapter(3, 6, 4, at::kFloat);
  const auto plain = at::linear(x, first + adapter.dense());
  adapter.on(first);
  adapter.on(second);
  (*adapter).dropout = 0.5;
  (*adapter).training = false;
  const auto state = at::detail::getDefaultCPUGenerator().get_state();
  CHECK_CLOSE(attentive::linear(x, first).detach(), plain.detach());
  CHECK(state.equal(at::detail::getDefaultCPUGenerator().get_state()));
  (*adapter).training = true;
  CHECK(!attentive::linear(x, first).allclose(plain, 1e-3, 1e-3));
  const auto both = linears(x, {{first, none}, {second, none}});
  CHECK_WITHIN((both[0] - at::linear(x, first)).detach(), (both[1] - at::linear(x, second)).detach(),
               {1e-5, 1e-5});
}

TEST_CASE("adapters: threads compute while others enter and leave the table", "[adapters]") {
  at::manual_seed(6);
  const auto x = at::randn({1, 6}), weight = frozen({8, 6}, at::kFloat);
  const Entered adapter(3, 6, 8, at::kFloat);
  adapter.on(weight);
  at::Tensor want;
  {
    const at::NoGradGuard no_grad;
    want = attentive::linear(x, weight);
  }
  std::atomic<bool> stop{false}, same{true};
  std::thread computing([&] {
    const at::NoGradGuard no_grad;
    while (!stop) same = same && attentive::linear(x, weight).equal(want);
  });
  for (int i = 0; i < 300; ++i) {
    const Entered other(1, 6, 8, at::kFloat);
    other.on(at::randn({8, 6}));
  }
  stop = true;
  computing.join();
  CHECK(same);
}
