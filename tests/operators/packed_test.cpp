// The operator `attention_varlen` computes what the function of the same name computes.

#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "operators/operator_calls.h"
#include "support/autocast.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

namespace {

struct Packed {
  at::Tensor q, k, v, ends_q, ends_k;
};

Packed packed_call(at::ScalarType type, const std::vector<int64_t>& ends_q,
                   const std::vector<int64_t>& ends_k) {
  at::manual_seed(11);
  const auto draw = [&](int64_t rows, int64_t heads, int64_t dim) {
    return at::randn({rows, heads, dim}, at::kDouble).to(type).requires_grad_();
  };
  return {draw(ends_q.back(), 4, 8), draw(ends_k.back(), 2, 8), draw(ends_k.back(), 2, 5), at::tensor(ends_q),
          at::tensor(ends_k)};
}

Named without_masks(Named named) {
  for (const auto* name : {"keep", "bias", "key_keep", "key_lengths", "weights"}) named.erase(name);
  return named;
}

std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& results,
                                  const std::vector<at::Tensor>& leaves, bool create_graph = false) {
  std::vector<at::Tensor> outputs, directions;
  at::manual_seed(43);
  for (const auto& x : results) {
    if (!x.defined()) continue;
    const auto finite = x.masked_fill(x.isinf(), 0.0);
    outputs.push_back(finite);
    directions.push_back(at::randn(x.sizes(), x.options()));
  }
  return torch::autograd::grad(outputs, leaves, directions, create_graph, create_graph,
                               /*allow_unused=*/true);
}

}  // namespace

TEST_CASE("the packed operator computes what the function does", "[operators][packed]") {
  const auto type = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  const auto lengths = GENERATE(0, 1, 2);
  const bool learned = GENERATE(false, true);
  const std::vector<std::vector<int64_t>> ends_q = {{0, 4, 9, 10}, {0, 0, 6, 6}, {0}};
  const std::vector<std::vector<int64_t>> ends_k = {{0, 5, 5, 8}, {0, 3, 7, 7}, {0}};
  const auto call = packed_call(type, ends_q[lengths], ends_k[lengths]);
  AttentionOptions options{.causal = GENERATE(Causal::None, Causal::BottomRight), .window = {3, 1}};
  options.dropout_p = GENERATE(0.0, 0.4);
  options.dropout_stream =
      options.dropout_p > 0 ? GENERATE(DropoutStream::Counter, DropoutStream::Aten) : DropoutStream::Counter;
  AttentionExtras extras;
  extras.logsumexp = learned;
  if (learned) {
    extras.alibi_slopes = at::rand({4}, at::kDouble).to(type).requires_grad_();
    extras.sinks = at::randn({4}, at::kDouble).to(type).requires_grad_();
  }
  std::vector<at::Tensor> leaves{call.q, call.k, call.v};
  if (learned) leaves.insert(leaves.end(), {extras.alibi_slopes, extras.sinks});

  at::manual_seed(13);
  const auto results = call_operator("attention_varlen", {call.q, call.k, call.v, call.ends_q, call.ends_k},
                                     without_masks(arguments_of(options, extras)));
  const auto logsumexp = if_asked(learned, results[1]);
  at::manual_seed(13);
  const auto want = attention_varlen(call.q, call.k, call.v, call.ends_q, call.ends_k, options, extras);
  CHECK(difference(results[0].toTensor(), want.output, kEqual) == "");
  CHECK(difference(logsumexp, want.logsumexp, kEqual) == "");
  const auto got_gradients = gradients({results[0].toTensor(), logsumexp}, leaves);
  const auto want_gradients = gradients({want.output, want.logsumexp}, leaves);
  for (size_t i = 0; i < leaves.size(); ++i) {
    INFO("gradient " << i << " of q, k, v, slopes, sinks");
    // The sums over sequences of slopes and sinks are rounded in another order.
    const auto tolerance = i < 3 ? kEqual : tolerance_of(type, /*gradient=*/true);
    CHECK(difference(got_gradients[i], want_gradients[i], tolerance) == "");
  }
}

TEST_CASE("gradients of the packed operator can be differentiated again", "[operators][packed]") {
  const auto type = GENERATE(at::kFloat, at::kDouble);
  const auto call = packed_call(type, {0, 4, 9}, {0, 3, 8});
  const std::vector<at::Tensor> leaves{call.q, call.k, call.v};
  const auto second = [&](const at::Tensor& output) {
    at::Tensor sum;
    for (const auto& x : gradients({output}, leaves, /*create_graph=*/true))
      sum = sum.defined() ? sum + x.square().sum() : x.square().sum();
    return torch::autograd::grad({sum}, leaves);
  };
  const auto got = second(
      call_operator("attention_varlen", {call.q, call.k, call.v, call.ends_q, call.ends_k})[0].toTensor());
  const auto want = second(attention_varlen(call.q, call.k, call.v, call.ends_q, call.ends_k).output);
  for (size_t i = 0; i < leaves.size(); ++i)
    CHECK(difference(got[i], want[i], tolerance_of(type, /*gradient=*/true)) == "");
}

TEST_CASE("under autocast, the packed operator casts q, k and v", "[operators][packed]") {
  const auto call = packed_call(at::kFloat, {0, 4, 9}, {0, 3, 8});
  const CpuAutocast autocast(at::kBFloat16);
  const auto got =
      call_operator("attention_varlen", {call.q, call.k, call.v, call.ends_q, call.ends_k})[0].toTensor();
  CHECK(got.scalar_type() == at::kBFloat16);
  CHECK(difference(got, attention_varlen(call.q, call.k, call.v, call.ends_q, call.ends_k).output, kEqual) ==
        "");
}
