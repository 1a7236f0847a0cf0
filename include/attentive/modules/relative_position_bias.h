#pragma once

#include <cstdint>

#include <attentive/modules/module.h>

namespace attentive {

/// Options of `RelativePositionBias`.
struct RelativePositionBiasOptions {
  static constexpr const char* kModule = "RelativePositionBias";
  explicit RelativePositionBiasOptions(int64_t num_heads) : num_heads_(num_heads) {}

  TORCH_ARG(int64_t, num_heads);
  /// Rows of the table; half of them are for keys after the query if `bidirectional`.
  TORCH_ARG(int64_t, num_buckets) = 32;
  TORCH_ARG(int64_t, max_distance) = 128;  ///< all distances from here on share the last bucket
  /// Whether keys after the query have buckets of their own, as in an encoder. If not, they share the bucket
  /// of distance 0, which a causal decoder never reads for them.
  TORCH_ARG(bool, bidirectional) = true;

  ATTENTIVE_OPTIONS(num_heads_, num_buckets_, max_distance_, bidirectional_);
};

/// T5's relative position bias: a learned number for every head and every bucket of distances, which is added
/// to the scores.
///
///   forward(L, S) -> (num_heads, L, S), for `Mask::per_head(Mask::bias(...))`
///
/// With L queries and S keys, query i has position i + S - L, as everywhere in this package; with a cache, L
/// is the number of new tokens and S that of all tokens. Near distances have a bucket each, farther ones
/// share buckets whose width grows with the distance. `MultiHeadAttention`, `TransformerAttention` and the
/// blocks take the options as `position_bias`. In T5 all layers share the bias of the first one: compute it
/// once, and pass it to every layer as a mask.
///
/// Parameter weight (num_buckets, num_heads): name and random draw of `torch.nn.Embedding`, so that a module
/// called `relative_attention_bias` has the names of T5's state dict. The buckets are computed in float32 by
/// the operations of transformers' T5, on the device of the weight. For half types, gradients are summed in
/// float32.
/// Throws c10::ValueError for negative sizes; when built, unless there are at least 2 buckets (4 if
/// bidirectional) and max_distance exceeds the distances with a bucket each (half the buckets of a
/// direction). Memory: num_heads L S numbers.
/// Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", section 2.1.
///
///   attentive::RelativePositionBias bias(RelativePositionBiasOptions(8).bidirectional(false));
///   const auto shared = Mask::per_head(Mask::bias(bias->forward(tokens, tokens)));
///   for (auto& layer : layers) x = layer->forward(x, shared);
class RelativePositionBiasImpl : public Module<RelativePositionBiasImpl> {
 public:
  static constexpr const char* kName = "RelativePositionBias";
  explicit RelativePositionBiasImpl(int64_t num_heads)
      : RelativePositionBiasImpl(RelativePositionBiasOptions(num_heads)) {}
  explicit RelativePositionBiasImpl(RelativePositionBiasOptions options);

  void reset() override;
  at::Tensor forward(int64_t queries, int64_t keys);
  /// The row of the table for each difference "position of the key - position of the query", which are int64
  /// of any shape.
  at::Tensor buckets(const at::Tensor& differences) const;

  RelativePositionBiasOptions options;
  at::Tensor weight;
};
using RelativePositionBias = ModuleHolder<RelativePositionBiasImpl>;

}  // namespace attentive
