#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <attentive/score/score_callbacks.h>

namespace attentive {

// Masks that have a name. Each function returns a `MaskMod` for `AttentionExtras::block_mask`, which combines
// with a causal mask, a window and `Mask`; `explain` prints its name. Positions count as in the causal mask:
// with L queries and S keys, query i has the position i + S - L, or the one that `Align` says.

/// Tokens see the tokens of their own document.
///
/// documents (S) or (B, S), integers: the document of each token; equal numbers are one document, which need
/// not be contiguous. With (B, S), every batch item has documents of its own.
/// Throws c10::ValueError for another shape, and c10::TypeError unless the numbers are integers. A call with
/// more keys than documents, or with more queries than keys, throws c10::IndexError; documents beyond the
/// last key are not read. Memory: it holds the tensor, whose numbers each call reads.
///
///   const auto mask = document_mask(documents);
///   auto y = attention(q, k, v, {.causal = Causal::BottomRight}, {.block_mask = mask}).output;
MaskMod document_mask(const at::Tensor& documents);

/// A causal mask in which every token also sees the first `prefix` keys.
///
/// Throws c10::ValueError if prefix is below 0.
/// Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
/// Transformer", section 3.2.1.
///
///   auto y = attention(q, k, v, {}, {.block_mask = prefix_lm_mask(64)}).output;
MaskMod prefix_lm_mask(int64_t prefix);

/// Overload with a prefix per batch item.
///
/// prefix (B), integers. Throws c10::ValueError for another shape, and for a number below 0 in a tensor on
/// the CPU; c10::TypeError unless the numbers are integers. A call with more batch items throws
/// c10::IndexError. Memory: it holds the tensor, whose numbers each call reads.
///
///   auto y = attention(q, k, v, {}, {.block_mask = prefix_lm_mask(prefixes)}).output;
MaskMod prefix_lm_mask(const at::Tensor& prefix);

/// A causal window with gaps: a token sees the keys at the distances 0, step, 2 step, … below `window`.
///
/// Throws c10::ValueError unless window and step are above 0 and below 2^31.
/// Source: Beltagy et al. 2020, "Longformer: The Long-Document Transformer", section 3.1.
///
///   auto y = attention(q, k, v, {}, {.block_mask = dilated_mask(512, 4)}).output;
MaskMod dilated_mask(int64_t window, int64_t step);

/// The first `global` tokens see every token and are seen by every token; the others see a window, of `left`
/// keys before their position to `right` keys after it, -1: all of them.
///
/// Throws c10::ValueError if global is below 0, and if left or right is below -1.
/// Source: Beltagy et al. 2020, "Longformer: The Long-Document Transformer", section 3.1.
///
///   auto y = attention(q, k, v, {}, {.block_mask = global_local_mask(4, 128, 128)}).output;
MaskMod global_local_mask(int64_t global, int64_t left, int64_t right);

/// How the neighbourhood of a pixel ends at the border of an image.
enum class ImageBorder {
  Cut,     ///< pixels beyond the border are missing
  Shifted  ///< it moves inwards, so that every pixel has equally many neighbours, as in natten
};

/// Tokens are the pixels of an image of height x width, row by row; a pixel sees those at most `radius` rows
/// and `radius` columns away. Tokens beyond the image see none and are seen by none.
///
/// Throws c10::ValueError unless height and width are above 0 and their product below 2^31, if radius is
/// below 0, and if a shifted neighbourhood of 2 radius + 1 pixels is larger than the image.
/// Source: Hassani et al. 2023, "Neighborhood Attention Transformer", section 3.1 (Shifted).
///
///   auto y = attention(q, k, v, {}, {.block_mask = neighbourhood_2d_mask(32, 32, 3)}).output;
MaskMod neighbourhood_2d_mask(int64_t height, int64_t width, int64_t radius,
                              ImageBorder border = ImageBorder::Cut);

/// The training mask of block diffusion: `length` noised tokens and then the `length` clean tokens, both in
/// blocks of `block`. A noised token sees the noised tokens of its own block and the clean tokens of earlier
/// blocks; a clean token sees the clean tokens up to the end of its own block. Tokens from 2 length on see
/// none and are seen by none.
///
/// Throws c10::ValueError unless length is above 0 and below 2^30, and block above 0.
/// Source: Arriola et al. 2025, "Block Diffusion: Interpolating Between Autoregressive and Diffusion Language
/// Models", section 3.3.
///
///   auto y = attention(q, k, v, {}, {.block_mask = block_diffusion_mask(1024, 16)}).output;
MaskMod block_diffusion_mask(int64_t length, int64_t block);

/// The mask of a tree of draft tokens, the last N keys, in speculative decoding: a draft token sees itself,
/// its ancestors, and every key before the draft. A query before the draft sees the keys up to its own, as
/// in a causal mask.
///
/// parents (N), integers: the index of each draft token's parent, which comes before it, or -1 for a token
/// that follows the keys before the draft. Throws c10::ValueError for another shape, for N = 0 and for
/// another parent; c10::TypeError unless the numbers are integers. Memory: O(N); the tensor is not held.
/// Source: Miao et al. 2024, "SpecInfer", section 4.1.
///
///   const auto mask = tree_mask(at::tensor({-1, 0, 0, 1}, at::kLong));
///   auto y = attention(q, k, v, {}, {.block_mask = mask}).output;
MaskMod tree_mask(const at::Tensor& parents);

}  // namespace attentive
