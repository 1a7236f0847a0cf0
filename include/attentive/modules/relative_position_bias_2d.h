#pragma once

#include <cstdint>

#include <attentive/modules/module.h>

namespace attentive {

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
  explicit RelativePositionBias2dImpl(RelativePositionBias2dOptions options);

  void reset() override;
  at::Tensor forward();

  RelativePositionBias2dOptions options;
  at::Tensor relative_position_bias_table;
};
using RelativePositionBias2d = ModuleHolder<RelativePositionBias2dImpl>;

}  // namespace attentive
