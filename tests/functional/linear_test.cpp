// Tests of the products of projections. CTest runs them a second time with ATEN_CPU_CAPABILITY=avx2, with
// which half types are multiplied in float32.

#include "functional/linear.h"

#include <memory>
#include <string>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <attentive/modules/multi_head_attention.h>
#include <attentive/notebooks/toy_notebook.h>
#include <attentive/parity/compare.h>

#include "kernels/gemm/products.h"
#include "kernels/simd/selection.h"
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
