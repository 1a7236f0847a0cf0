#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <ATen/core/Tensor.h>

#include <attentive/score/pair_functions.h>

namespace attentive {

/// A mask of one's own for a call, as `AttentionExtras::block_mask`: a mask function, and perhaps which of
/// its tiles are empty and which are full. The native kernel neither reads nor computes an empty tile and
/// tests no pair of a full one; only a strip of up to 32 queries that lies across the border of two tiles
/// with different classes is computed and tested as a whole.
///
/// A `MaskMod` converts to it; each call then classifies the tiles anew. `BlockMask::kept` does so once for
/// many calls, layers and backward passes with the same lengths, of a mask function or of a tensor of pairs.
///
///   const auto blocks = BlockMask::kept(document_mask(documents), 1, heads, tokens, tokens);
///   auto y = attention(q, k, v, {.causal = Causal::BottomRight}, {.block_mask = blocks}).output;
class BlockMask {
 public:
  BlockMask() = default;
  BlockMask(MaskMod mask) : mask_(std::move(mask)) {}  // NOLINT(google-explicit-constructor)

  /// Classifies the tiles of a mask over batch items, heads, queries and keys. A call with this mask must
  /// have these lengths; its batch and heads must be these unless the mask does not depend on them. Tensors
  /// that the mask captured must be on the CPU and must not change while the object is used: a call throws
  /// c10::ValueError if one did. Throws c10::ValueError for an empty mask and for a size below 1. Memory: a
  /// byte per tile of 128 x 128 pairs.
  static BlockMask kept(MaskMod mask, int64_t batch, int64_t heads, int64_t queries, int64_t keys);

  /// Makes a mask of a tensor of pairs, as `Mask::keep` means it, and classifies its tiles: what a program
  /// has computed once serves every layer, step and backward pass.
  ///
  /// keep (L, S), (H, L, S), (B, 1, L, S) or (B, H, L, S), bool, on the CPU: true where query i may attend to
  /// key j. A call with this mask must have L queries and S keys; of B = 1 or H = 1, or without them, it may
  /// have any batch or heads. The tensor is copied, so that it may change afterwards.
  /// Throws c10::TypeError for another dtype, and c10::ValueError for another shape, for an empty tensor and
  /// for one on another device. Memory: a byte per pair, once for dimensions that were expanded, and a byte
  /// per tile.
  ///
  ///   const auto blocks = BlockMask::kept(visible);  // (tokens, tokens)
  ///   auto y = attention(q, k, v, {}, {.block_mask = blocks}).output;  // in every layer and step
  static BlockMask kept(const at::Tensor& keep);

  explicit operator bool() const { return static_cast<bool>(mask_); }
  const MaskMod& mask() const { return mask_; }
  /// Null if the tiles are classified at each call.
  const std::shared_ptr<const detail::BlockClasses>& classes() const { return classes_; }

  /// How many tiles there are, are empty, and are full, over the batch items and heads that differ. All 0
  /// without kept classes.
  struct Count {
    int64_t tiles = 0, empty = 0, full = 0;
  };
  Count count() const;

 private:
  MaskMod mask_;
  std::shared_ptr<const detail::BlockClasses> classes_;
};

}  // namespace attentive
