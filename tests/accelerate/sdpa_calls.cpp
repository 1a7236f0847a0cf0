#include "accelerate/sdpa_calls.h"

#include <limits>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/parity/compare.h>

#include "accelerate/sdpa_call.h"
#include "core/check.h"

namespace attentive::test {
namespace {

at::Tensor heads(int64_t batch, int64_t count, int64_t rows, int64_t dim, bool by_token,
                 at::ScalarType type) {
  if (by_token) return at::randn({batch, rows, count, dim}).to(type).transpose(1, 2);
  return at::randn({batch, count, rows, dim}).to(type);
}

SdpaCase masked(const std::string& name, const at::Tensor& mask, const SdpaShape& shape = {},
                bool gradient = false) {
  auto call = random_call(name, shape);
  call.mask = mask;
  call.mask_gradient = gradient;
  return call;
}

SdpaCase grouped(const std::string& name, int64_t kv_heads) {
  auto call = random_call(name, {.kv_heads = kv_heads});
  call.grouped = true;
  return call;
}

SdpaCase shared(SdpaCase call) {
  call.k = call.k.narrow(0, 0, 1);
  call.v = call.v.narrow(0, 0, 1);
  return call;
}

SdpaCase causal(SdpaCase call) {
  call.causal = true;
  return call;
}

}  // namespace

SdpaCase random_call(const std::string& name, const SdpaShape& s, at::ScalarType type) {
  return {name, heads(s.batch, s.heads, s.queries, s.dim, s.by_token, type),
          heads(s.batch, s.kv_heads, s.keys, s.dim, s.by_token, type),
          heads(s.batch, s.kv_heads, s.keys, s.value_dim, s.by_token, type)};
}

at::Tensor some_pairs(int64_t queries, int64_t keys, bool empty_row) {
  auto keep = at::rand({queries, keys}) > 0.3;
  keep.select(1, 0).fill_(true);
  if (empty_row) keep.select(0, 4).fill_(false);
  return keep;
}

std::vector<SdpaCase> sdpa_cases() {
  at::manual_seed(11);
  const double hidden = -std::numeric_limits<double>::infinity();
  std::vector<SdpaCase> cases = {
      random_call("plain"),
      causal(random_call("causal")),
      causal(random_call("causal, fewer queries", {.queries = 20})),
      causal(random_call("causal, fewer keys", {.keys = 20})),
      random_call("cross", {.queries = 7, .keys = 50}),
      random_call("one query", {.queries = 1, .keys = 50}),
      random_call("two keys", {.keys = 2}),
      masked("bool mask (L, S)", some_pairs(33, 33)),
      masked("bool mask with a row without keys", some_pairs(33, 33, true)),
      masked("bool mask (B, 1, L, S)", some_pairs(33, 33).expand({2, 1, 33, 33})),
      masked("bool mask (B, 1, 1, S)", at::rand({2, 1, 1, 33}) > 0.3),
      masked("bool mask (H, L, S)", some_pairs(33, 33).expand({4, 33, 33})),
      masked("bool mask (B, H, L, S)", at::rand({2, 4, 33, 33}) > 0.2),
      masked("float mask (L, S)", at::randn({33, 33})),
      masked("float mask with a row without keys",
             at::zeros({33, 33}).masked_fill(some_pairs(33, 33, true).logical_not(), hidden)),
      masked("float mask (H, L, S)", at::randn({4, 33, 33})),
      masked("float mask (B, H, L, S)", at::randn({2, 4, 33, 33})),
      masked("float mask (1, 1, L, 1)", at::randn({1, 1, 33, 1})),
      masked("gradient of a mask (L, S)", at::randn({33, 33}), {}, true),
      masked("gradient of a mask (H, L, S)", at::randn({4, 33, 33}), {}, true),
      masked("gradient of a mask (B, H, L, S)", at::randn({2, 4, 33, 33}), {}, true),
      masked("gradient of a mask (B, 1, 1, S)", at::randn({2, 1, 1, 33}), {}, true),
      grouped("two query heads share keys", 2),
      causal(grouped("four query heads share keys, causal", 1)),
      causal(random_call("lies by token", {.by_token = true})),
      causal(random_call("head size 5", {.dim = 5, .value_dim = 5})),
      random_call("larger values", {.value_dim = 24}),
      random_call("larger values, by token", {.value_dim = 24, .by_token = true}),
      causal(random_call("bfloat16", {}, at::kBFloat16)),
      causal(random_call("float16", {}, at::kHalf)),
      causal(random_call("long", {.batch = 1, .heads = 2, .kv_heads = 2, .queries = 300, .keys = 300})),
  };
  cases.push_back(grouped("shared keys and a bool mask", 2));
  cases.back().mask = some_pairs(33, 33);
  for (const double scale : {0.3, -0.3}) {
    cases.push_back(random_call(scale > 0 ? "scale" : "negative scale"));
    cases.back().scale = scale;
  }
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    cases.push_back(cast(masked("half mask with gradient", at::randn({4, 33, 33}), {}, true), type));
    cases.push_back(random_call("half with a float32 mask that has a gradient", {}, type));
    cases.back().mask = at::randn({33, 33});
    cases.back().mask_gradient = true;
  }
  // Keys or queries of batch 1, which PyTorch's composition broadcasts.
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const SdpaShape many = {.batch = 5, .queries = 150, .keys = 300};
    cases.push_back(causal(shared(random_call("shared batch, causal", many, type))));
    cases.push_back(
        shared(random_call("shared batch, few queries", {.batch = 3, .queries = 3, .keys = 90}, type)));
    cases.push_back(cast(shared(grouped("shared batch, grouped heads", 2)), type));
    cases.back().mask = some_pairs(33, 33, true);
    for (const auto& sizes : std::vector<std::vector<int64_t>>{
             {33, 33}, {2, 1, 33, 33}, {2, 1, 1, 33}, {1, 4, 33, 33}, {2, 4, 33, 33}}) {
      cases.push_back(cast(shared(masked("shared batch, gradient of a mask " + shape_string(sizes),
                                         at::randn(sizes), {}, true)),
                           type));
      cases.push_back(cast(
          shared(masked("shared batch, bool mask " + shape_string(sizes), at::rand(sizes) > 0.3)), type));
    }
  }
  cases.push_back(
      shared(random_call("shared batch, by token", {.batch = 3, .value_dim = 24, .by_token = true})));
  cases.push_back(shared(random_call("shared batch, gaps", {.dim = 32})));
  for (auto* x : {&cases.back().q, &cases.back().k}) *x = x->slice(3, 0, 32, 2);
  cases.push_back(random_call("shared keys of own values", {.batch = 3}));
  cases.back().k = cases.back().k.narrow(0, 1, 1);
  cases.push_back(random_call("shared values of own keys", {.batch = 3}));
  cases.back().v = cases.back().v.narrow(0, 1, 1);
  cases.push_back(masked("shared queries", at::randn({2, 1, 33, 33}), {}, true));
  cases.back().q = cases.back().q.narrow(0, 1, 1);
  cases.push_back(shared(random_call("shared batch of three dimensions")));
  for (auto* x : {&cases.back().q, &cases.back().k, &cases.back().v}) *x = x->select(1, 0);
  auto three = random_call("three dimensions", {.batch = 1, .heads = 6, .kv_heads = 6});
  for (auto* x : {&three.q, &three.k, &three.v}) *x = x->squeeze(0);
  cases.push_back(three);
  three.name = "three dimensions and a mask (B, L, S)";
  three.mask = at::randn({6, 33, 33});
  cases.push_back(three);
  return cases;
}

SdpaCase cast(const SdpaCase& call, at::ScalarType type) {
  auto result = call;
  for (auto* x : {&result.q, &result.k, &result.v}) *x = x->to(type);
  if (result.mask.defined() && result.mask.is_floating_point()) result.mask = result.mask.to(type);
  return result;
}

at::Tensor sdpa(const SdpaCase& call) {
  return at::scaled_dot_product_attention(call.q, call.k, call.v, as_optional(call.mask), call.dropout_p,
                                          call.causal, call.scale, call.grouped);
}

SdpaResults run(const SdpaCase& given, bool with_gradients) {
  auto call = given;
  std::vector<at::Tensor*> leaves = {&call.q, &call.k, &call.v};
  if (call.mask_gradient) leaves.push_back(&call.mask);
  for (auto* x : leaves) *x = x->detach().clone().requires_grad_(with_gradients);
  SdpaResults results;
  try {
    at::manual_seed(3);
    const auto y = sdpa(call);
    results.tensors = {y.detach()};
    if (!with_gradients) return results;
    at::manual_seed(4);
    y.backward(at::randn(y.sizes()).to(y.scalar_type()));
    for (const auto* x : leaves) results.tensors.push_back(x->grad());
  } catch (const c10::Error& error) {
    results.error = error.what_without_backtrace();
  }
  return results;
}

double distance(const at::Tensor& got, const at::Tensor& want) {
  if (got.sizes() != want.sizes()) return std::numeric_limits<double>::infinity();
  const auto a = got.to(at::kDouble), b = want.to(at::kDouble);
  const double off = (a - b).norm().item<double>(), whole = b.norm().item<double>();
  return off <= std::numeric_limits<double>::max() ? off / (whole + 1e-9)
                                                   : std::numeric_limits<double>::infinity();
}

double limit_of(at::ScalarType type) {
  return type == at::kFloat ? 2e-6 : type == at::kHalf ? 2e-3 : 1.2e-2;
}

bool same_bits(const SdpaResults& a, const SdpaResults& b) {
  if (a.error != b.error || a.tensors.size() != b.tensors.size()) return false;
  for (size_t n = 0; n < a.tensors.size(); ++n) {
    if (!bit_equal(a.tensors[n], b.tensors[n]) || a.tensors[n].strides() != b.tensors[n].strides())
      return false;
  }
  return true;
}

std::string only_reason() {
  const auto report = sdpa_report();
  return report.taken == 0 && report.left.size() == 1 ? report.left[0].reason : to_string(report);
}

std::string left_alone(const SdpaCase& call) {
  const auto off = run(call);
  const accelerate::EverySizeGuard every_size;
  const SdpaGuard guard;
  reset_sdpa_report();
  CHECK(same_bits(run(call), off));
  return only_reason();
}

}  // namespace attentive::test
