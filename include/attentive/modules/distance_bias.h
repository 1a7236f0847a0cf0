#pragma once

#include <cstdint>

#include <attentive/modules/module.h>

namespace attentive {

/// Options of `DistanceBias`.
struct DistanceBiasOptions {
  static constexpr const char* kModule = "DistanceBias";
  explicit DistanceBiasOptions(int64_t num_heads) : num_heads_(num_heads) {}

  TORCH_ARG(int64_t, num_heads);

  ATTENTIVE_OPTIONS(num_heads_);
};

/// ALiBi with learned slopes: -slope * |i + S - L - j| is added to the score of query i and key j.
///
///   forward(L, S) -> (num_heads, L, S), for `Mask::per_head(Mask::bias(...))`
///
/// `MultiHeadAttention`, `TransformerAttention` and the blocks take the options as `position_bias` and pass
/// the parameter as `AttentionExtras::alibi_slopes`, so that no bias of L S numbers exists; so can a program
/// that calls `attention` itself.
///
/// Parameter slopes (num_heads): the standard slopes (`alibi_slopes`), which draws nothing. A slope may
/// become negative: the head then prefers far keys.
/// Throws c10::ValueError for negative sizes. Memory: num_heads L S numbers.
/// Source: Press et al. 2022, "Train Short, Test Long", whose slopes are fixed.
///
///   attentive::DistanceBias bias(/*num_heads=*/8);
///   auto y = attentive::attention(q, k, v, {}, {.alibi_slopes = bias->slopes}).output;
class DistanceBiasImpl : public Module<DistanceBiasImpl> {
 public:
  static constexpr const char* kName = "DistanceBias";
  explicit DistanceBiasImpl(int64_t num_heads) : DistanceBiasImpl(DistanceBiasOptions(num_heads)) {}
  explicit DistanceBiasImpl(DistanceBiasOptions options);

  void reset() override;
  at::Tensor forward(int64_t queries, int64_t keys);

  DistanceBiasOptions options;
  at::Tensor slopes;
};
using DistanceBias = ModuleHolder<DistanceBiasImpl>;

}  // namespace attentive
