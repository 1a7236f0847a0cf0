// Tests every module with meaningless sizes and tensors: the error begins with the module's name and is never
// a message from inside a library.

#include "support/extremes.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/attentive.h>

using namespace attentive;
using namespace attentive::test;

namespace {

// The sizes of every constructor, each with small numbers for the other sizes.
std::vector<Probe<int64_t>> sizes() {
  using Grouped = GroupedQueryAttention;
  using Block = TransformerBlockOptions;
  return {{"SelfAttentionV1", [](int64_t n) { SelfAttentionV1(n, 4); }},
          {"SelfAttentionV1", [](int64_t n) { SelfAttentionV1(4, n); }},
          {"MatrixSelfAttention", [](int64_t n) { MatrixSelfAttention(n, 4); }},
          {"MatrixSelfAttention", [](int64_t n) { MatrixSelfAttention(4, n); }},
          {"SelfAttentionV2", [](int64_t n) { SelfAttentionV2(n, 4); }},
          {"SelfAttentionV2", [](int64_t n) { SelfAttentionV2(4, n); }},
          {"CausalAttention", [](int64_t n) { CausalAttention(n, 4, 6, 0.0); }},
          {"CausalAttention", [](int64_t n) { CausalAttention(4, n, 6, 0.0); }},
          {"MultiHeadAttentionWrapper", [](int64_t n) { MultiHeadAttentionWrapper(n, 4, 6, 0.0, 2); }},
          {"MultiHeadAttentionWrapper", [](int64_t n) { MultiHeadAttentionWrapper(4, n, 6, 0.0, 2); }},
          {"MultiHeadAttentionWrapper", [](int64_t n) { MultiHeadAttentionWrapper(4, 4, 6, 0.0, n); }},
          {"MultiHeadAttention", [](int64_t n) { MultiHeadAttention(n, 4, 6, 0.0, 2); }},
          {"MultiHeadAttention", [](int64_t n) { MultiHeadAttention(4, n, 6, 0.0, 2); }},
          {"MultiHeadAttention", [](int64_t n) { MultiHeadAttention(4, 4, 6, 0.0, n); }},
          {"GroupedQueryAttention", [](int64_t n) { Grouped(n, 4, 6, 0.0, 2, 1); }},
          {"GroupedQueryAttention", [](int64_t n) { Grouped(4, n, 6, 0.0, 2, 1); }},
          {"GroupedQueryAttention", [](int64_t n) { Grouped(4, 4, 6, 0.0, n, 1); }},
          {"GroupedQueryAttention", [](int64_t n) { Grouped(4, 4, 6, 0.0, 2, n); }},
          {"MultiHeadSelfAttention", [](int64_t n) { MultiHeadSelfAttention(n, 2); }},
          {"MultiHeadSelfAttention", [](int64_t n) { MultiHeadSelfAttention(4, n); }},
          {"SharedHeadAttention", [](int64_t n) { SharedHeadAttention(n, 2); }},
          {"SharedHeadAttention", [](int64_t n) { SharedHeadAttention(4, n); }},
          {"FusedSelfAttention", [](int64_t n) { FusedSelfAttention(n, 2); }},
          {"FusedSelfAttention", [](int64_t n) { FusedSelfAttention(4, n); }},
          {"CrossAttention", [](int64_t n) { CrossAttention(n, 4, 4, 0.0, 2); }},
          {"CrossAttention", [](int64_t n) { CrossAttention(4, n, 4, 0.0, 2); }},
          {"CrossAttention", [](int64_t n) { CrossAttention(4, 4, n, 0.0, 2); }},
          {"CrossAttention", [](int64_t n) { CrossAttention(4, 4, 4, 0.0, n); }},
          {"LinearAttention", [](int64_t n) { LinearAttention(n, 4, 2); }},
          {"LinearAttention", [](int64_t n) { LinearAttention(4, n, 2); }},
          {"LinearAttention", [](int64_t n) { LinearAttention(4, 4, n); }},
          {"LayerNorm", [](int64_t n) { LayerNorm{n}; }},
          {"RMSNorm", [](int64_t n) { RMSNorm{n}; }},
          {"FeedForward", [](int64_t n) { FeedForward{n}; }},
          {"FeedForward", [](int64_t n) { FeedForward(FeedForwardOptions(4).hidden_dim(n == 0 ? -1 : n)); }},
          {"LearnedPositions", [](int64_t n) { LearnedPositions(n, 4); }},
          {"LearnedPositions", [](int64_t n) { LearnedPositions(4, n); }},
          {"DistanceBias", [](int64_t n) { DistanceBias{n}; }},
          {"RelativePositionBias", [](int64_t n) { RelativePositionBias{n}; }},
          {"RelativePositionBias",
           [](int64_t n) { RelativePositionBias(RelativePositionBiasOptions(2).num_buckets(n)); }},
          {"RelativePositionBias2d", [](int64_t n) { RelativePositionBias2d(n, 2, 2); }},
          {"RelativePositionBias2d", [](int64_t n) { RelativePositionBias2d(2, n, 2); }},
          {"RelativePositionBias2d", [](int64_t n) { RelativePositionBias2d(2, 2, n); }},
          {"TransformerAttention", [](int64_t n) { TransformerAttention(n, 2); }},
          {"TransformerAttention", [](int64_t n) { TransformerAttention(4, n); }},
          {"TransformerBlock|FeedForward",
           [](int64_t n) { TransformerBlock(Block(4, 2).hidden_dim(n == 0 ? -1 : n)); }},
          {"DecoderBlock|CrossAttention",
           [](int64_t n) { DecoderBlock(Block(4, 2).memory_dim(n == 0 ? -1 : n)); }},
          {"compat::LayerNorm", [](int64_t n) { compat::LayerNorm{n}; }},
          {"compat::MultiheadAttention", [](int64_t n) { compat::MultiheadAttention(n, 1); }},
          {"compat::MultiheadAttention", [](int64_t n) { compat::MultiheadAttention(4, n); }},
          {"compat::TransformerEncoderLayer", [](int64_t n) { compat::TransformerEncoderLayer(n, 1); }},
          {"compat::TransformerDecoderLayer", [](int64_t n) { compat::TransformerDecoderLayer(n, 1); }}};
}

std::vector<Probe<at::Tensor>> forwards() {
  const auto x = at::randn({2, 3, 4});
  return {
      {"SelfAttentionV1", [](auto& t) { SelfAttentionV1(4, 4)->forward(t); }},
      {"MatrixSelfAttention", [](auto& t) { MatrixSelfAttention(4, 4)->forward(t); }},
      {"SelfAttentionV2", [](auto& t) { SelfAttentionV2(4, 4)->forward(t); }},
      {"CausalAttention", [](auto& t) { CausalAttention(4, 4, 6, 0.0)->forward(t); }},
      {"MultiHeadAttentionWrapper", [](auto& t) { MultiHeadAttentionWrapper(4, 4, 6, 0.0, 2)->forward(t); }},
      {"MultiHeadAttention", [](auto& t) { MultiHeadAttention(4, 4, 6, 0.0, 2)->forward(t); }},
      {"GroupedQueryAttention", [](auto& t) { GroupedQueryAttention(4, 4, 6, 0.0, 2, 1)->forward(t); }},
      {"MultiHeadSelfAttention", [](auto& t) { MultiHeadSelfAttention(4, 2)->forward(t); }},
      {"SharedHeadAttention", [](auto& t) { SharedHeadAttention(4, 2)->forward(t, t, t); }},
      {"FusedSelfAttention", [](auto& t) { FusedSelfAttention(4, 2)->forward(t); }},
      {"CrossAttention", [](auto& t) { CrossAttention(4, 4, 4, 0.0, 2)->forward(t, t); }},
      {"CrossAttention", [=](auto& t) { CrossAttention(4, 4, 4, 0.0, 2)->forward(x, t); }},
      {"LinearAttention", [](auto& t) { LinearAttention(4, 4, 2)->forward(t); }},
      {"LayerNorm", [](auto& t) { LayerNorm(4)->forward(t); }},
      {"FeedForward", [](auto& t) { FeedForward(4)->forward(t); }},
      {"TransformerAttention", [](auto& t) { TransformerAttention(4, 2)->forward(t); }},
      {"compat::LayerNorm", [](auto& t) { compat::LayerNorm(4)->forward(t); }},
      {"compat::MultiheadAttention", [](auto& t) { compat::MultiheadAttention(4, 2)->forward(t, t, t); }},
      {"compat::TransformerEncoderLayer",
       [](auto& t) { compat::TransformerEncoderLayer(4, 2)->forward(t); }}};
}

}  // namespace

TEST_CASE("Modules refuse sizes without meaning or memory by name", "[extremes]") {
  for (const auto& probe : sizes()) {
    for (const int64_t size : kSizesWithoutMeaning) CHECK_NAMED(probe, size);
  }
}

TEST_CASE("Modules refuse probabilities and eps without meaning by name", "[extremes]") {
  using Block = TransformerBlockOptions;
  const std::vector<Probe<double>> probes = {
      {"CausalAttention", [](double p) { CausalAttention(4, 4, 6, p); }},
      {"MultiHeadAttentionWrapper", [](double p) { MultiHeadAttentionWrapper(4, 4, 6, p, 2); }},
      {"MultiHeadAttention", [](double p) { MultiHeadAttention(4, 4, 6, p, 2); }},
      {"GroupedQueryAttention", [](double p) { GroupedQueryAttention(4, 4, 6, p, 2, 1); }},
      {"MultiHeadSelfAttention", [](double p) { MultiHeadSelfAttention(4, 2, p); }},
      {"FusedSelfAttention",
       [](double p) { FusedSelfAttention(FusedSelfAttentionOptions(4, 2).dropout(p)); }},
      {"CrossAttention", [](double p) { CrossAttention(4, 4, 4, p, 2); }},
      {"ScaledDotProductAttention", [](double p) { ScaledDotProductAttention{p}; }},
      {"TransformerAttention",
       [](double p) { TransformerAttention(TransformerAttentionOptions(4, 2).dropout(p)); }},
      {"TransformerBlock", [](double p) { TransformerBlock(Block(4, 2).dropout(p)); }},
      {"DecoderBlock", [](double p) { DecoderBlock(Block(4, 2).dropout(p)); }},
      {"LayerNorm", [](double eps) { LayerNorm(LayerNormOptions(4).eps(-std::abs(eps))); }},
      {"RMSNorm", [](double eps) { RMSNorm(RMSNormOptions(4).eps(-std::abs(eps))); }}};
  constexpr auto kInf = std::numeric_limits<double>::infinity();
  for (const auto& probe : probes) {
    for (const double p : {-1.0, 2.0, kInf, -kInf, std::numeric_limits<double>::quiet_NaN()})
      CHECK_NAMED(probe, p);
  }
}

TEST_CASE("Modules refuse tensors that they cannot read by name", "[extremes]") {
  const auto plain = at::zeros({2, 3, 4});
  const std::vector<at::Tensor> strange = {{},
                                           at::zeros({}),
                                           at::zeros({4}),
                                           at::zeros({1, 1, 1, 3, 4}),
                                           at::zeros({2, 3, 5}),
                                           plain.to(at::kLong),
                                           plain.to(at::kDouble),
                                           plain.to(at::kComplexFloat),
                                           plain.to(at::kMeta),
                                           plain.to_sparse(),
                                           plain.to_mkldnn(),
                                           at::quantize_per_tensor(plain, 0.1, 0, at::kQInt8),
                                           at::_nested_tensor_from_tensor_list({plain[0], plain[1]})};
  for (const auto& probe : forwards()) {
    for (const auto& tensor : strange) {
      if (probe.name.ends_with("LayerNorm") && tensor.defined() && tensor.dim() > 0 && !tensor.is_nested() &&
          tensor.size(-1) == 4 && tensor.layout() == at::kStrided && tensor.scalar_type() == at::kFloat &&
          tensor.is_cpu()) {
        continue;  // a norm takes any rank
      }
      CHECK_NAMED(probe, tensor);
    }
  }
}
