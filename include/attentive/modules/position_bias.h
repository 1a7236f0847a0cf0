#pragma once

#include <cstdint>
#include <variant>

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
  explicit RelativePositionBiasImpl(RelativePositionBiasOptions options_) : options(options_) { build(); }

  void reset() override;
  at::Tensor forward(int64_t queries, int64_t keys);
  /// The row of the table for each difference "position of the key - position of the query", which are int64
  /// of any shape.
  at::Tensor buckets(const at::Tensor& differences) const;

  RelativePositionBiasOptions options;
  at::Tensor weight;
};
using RelativePositionBias = ModuleHolder<RelativePositionBiasImpl>;

/// Options of `RelativePositionBias2d`.
struct RelativePositionBias2dOptions {
  static constexpr const char* kModule = "RelativePositionBias2d";
  RelativePositionBias2dOptions(int64_t height, int64_t width, int64_t num_heads)
      : height_(height), width_(width), num_heads_(num_heads) {}

  TORCH_ARG(int64_t, height);  ///< rows of a window
  TORCH_ARG(int64_t, width);   ///< columns of a window
  TORCH_ARG(int64_t, num_heads);

  ATTENTIVE_OPTIONS(height_, width_, num_heads_);
};

/// Swin's relative position bias: a learned number for every head and every pair of a row difference and a
/// column difference within a window, which is added to the scores.
///
///   forward() -> (num_heads, N, N) with N = height * width, for `Mask::per_head(Mask::bias(...))`
///
/// The tokens of a window are in row-major order, as `window_partition` returns them; `shifted_window_mask`
/// is the mask of the windows of a shifted image. `MultiHeadAttention`, `TransformerAttention` and the blocks
/// take the options as `position_bias`; every call then has N tokens.
///
/// Parameter relative_position_bias_table ((2 height - 1) (2 width - 1), num_heads), zeros: name, order of
/// rows and initial values of transformers' Swin. The bias of query (a, b) and key (c, d) is row (a - c +
/// height - 1) (2 width - 1) + b - d + width - 1. For half types, gradients are summed in float32.
/// Throws c10::ValueError when built, unless every size is positive. Memory: num_heads N N numbers.
/// Source: Liu et al. 2021, "Swin Transformer", section 3.2.
///
///   attentive::RelativePositionBias2d bias(/*height=*/7, /*width=*/7, /*num_heads=*/3);
///   const auto mask = Mask::per_head(Mask::bias(bias->forward()));
class RelativePositionBias2dImpl : public Module<RelativePositionBias2dImpl> {
 public:
  static constexpr const char* kName = "RelativePositionBias2d";
  RelativePositionBias2dImpl(int64_t height, int64_t width, int64_t num_heads)
      : RelativePositionBias2dImpl(RelativePositionBias2dOptions(height, width, num_heads)) {}
  explicit RelativePositionBias2dImpl(RelativePositionBias2dOptions options_) : options(options_) { build(); }

  void reset() override;
  at::Tensor forward();

  RelativePositionBias2dOptions options;
  at::Tensor relative_position_bias_table;
};
using RelativePositionBias2d = ModuleHolder<RelativePositionBias2dImpl>;

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
  explicit DistanceBiasImpl(DistanceBiasOptions options_) : options(options_) { build(); }

  void reset() override;
  at::Tensor forward(int64_t queries, int64_t keys);

  DistanceBiasOptions options;
  at::Tensor slopes;
};
using DistanceBias = ModuleHolder<DistanceBiasImpl>;

/// The option `position_bias` of the attention layers: a learned bias that depends on the positions of query
/// and key. The layer builds the module as its child `position_bias`, after everything else that draws from
/// the generator, and adds it in every call; the number of heads must be the layer's.
///
/// With a cache, the queries are the new tokens. A `RingKVCache`, which keeps the last keys alone, gives the
/// right bias too, because each of these depends on the distance of query and key. The layers refuse by name
/// a `RelativePositionBias2d` in a call with another number of tokens than its window's or with a cache, a
/// `DistanceBias` beside `alibi`, and every position bias in a sequence split over processes
/// (`AttentionContext`).
///
///   auto options = TransformerAttentionOptions(512, 8).position_bias(RelativePositionBiasOptions(8));
///   TransformerAttention attention(options);
///   attention->position_bias->as<RelativePositionBias>()->weight;
using PositionBiasOptions = std::variant<std::monostate, RelativePositionBiasOptions,
                                         RelativePositionBias2dOptions, DistanceBiasOptions>;

}  // namespace attentive
