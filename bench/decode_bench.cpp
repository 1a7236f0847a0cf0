// One new query against a long cache, with 32 query heads, 8 key heads and head_dim 128.

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <attentive/functional/attention.h>

#include "inputs.h"
#include "suites.h"

namespace bench {
namespace {

constexpr int64_t kDecodeHeads = 32, kDecodeKeyHeads = 8, kDim = 128;

// Stacks the query heads of a group as rows of one head, so that ATen reads each key once per group.
at::Tensor stacked(const Qkv& x) {
  const auto rows = x.q.view({1, kDecodeKeyHeads, kDecodeHeads / kDecodeKeyHeads, kDim});
  return at::scaled_dot_product_attention(rows, x.k, x.v).view({1, kDecodeHeads, 1, kDim});
}

at::Tensor read_plainly(const Qkv& x) {
  double sum = 0;
  for (const auto* t : {&x.k, &x.v}) {
    sum += read_all(static_cast<const float*>(t->const_data_ptr()),
                    static_cast<long>(t->nbytes() / sizeof(float)));
  }
  return at::scalar_tensor(sum);
}

void add_decode(Runner& runner, int64_t keys, at::ScalarType type) {
  Case c{
      "decode", fmt::format("32/8 heads, {} keys", token_count(keys)), type_name(type), Limit::Read,
      static_cast<double>(2 * kDecodeKeyHeads * keys * kDim) * static_cast<double>(c10::elementSize(type))};
  if (!runner.wants(c)) return;
  at::manual_seed(7);
  const Qkv x{at::randn({1, kDecodeHeads, 1, kDim}).to(type),
              at::randn({1, kDecodeKeyHeads, keys, kDim}).to(type),
              at::randn({1, kDecodeKeyHeads, keys, kDim}).to(type)};
  c.contenders = {
      {"attentive",
       [=] {
         return Tensors{attentive::attention(x.q, x.k, x.v, {.causal = attentive::Causal::BottomRight})};
       }},
      {"torch sdpa enable_gqa",
       [=] { return Tensors{at::scaled_dot_product_attention(x.q, x.k, x.v, {}, 0.0, false, {}, true)}; }},
      {"torch sdpa, stacked heads", [=] { return Tensors{stacked(x)}; }},
      {"plain read of K and V", [=] { return Tensors{read_plainly(x)}; }}};
  runner.run(c);
}

}  // namespace

void decode_suite(Runner& runner) {
  const at::NoGradGuard no_grad;
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    for (const int64_t keys : {1024, 8192, 32768}) add_decode(runner, keys, type);
  }
}

}  // namespace bench
