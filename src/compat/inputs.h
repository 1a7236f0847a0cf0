#pragma once

// Checks of PyTorch's inputs and masks, by name, and the conversion of such masks to typed ones.

#include <attentive/core/mask.h>

namespace attentive::compat {

// Throws unless x has that rank, that many features, and device and dtype of `parameter` (under autocast any
// dtype).
void check_input(const char* who, const char* name, const at::Tensor& x, int64_t rank, int64_t features,
                 const at::Tensor& parameter);

// Throws unless x is (tokens, features), or the same with a batch dimension, first or second by batch_first.
void check_sequences(const char* who, const char* name, const at::Tensor& x, int64_t features,
                     bool batch_first);

// The sizes from which the shapes of a call's masks follow.
struct MaskSizes {
  int64_t batch, heads, queries, keys;
  bool batched;
};

// Sizes of a call whose query and key have rank 2, or rank 3 with the batch first or second by batch_first.
MaskSizes mask_sizes(const at::Tensor& query, const at::Tensor& key, int64_t heads, bool batch_first);

// Throws unless the mask is (L, S) or (N * H, L, S), (H, L, S) if unbatched, bool or floating, or undefined.
void check_attention_mask(const char* who, const char* name, const at::Tensor& mask, const MaskSizes& sizes);

// Throws unless the mask is (N, S), (S) if unbatched, bool or floating, or undefined.
void check_padding_mask(const char* who, const char* name, const at::Tensor& mask, const MaskSizes& sizes);

// Checked masks as typed ones: bool hides where true, floating is added. `appended` keys after the sequence
// (bias_k, zeros) stay visible.
Mask attention_mask(const at::Tensor& mask, const MaskSizes& sizes, int64_t appended);
Mask padding_mask(const at::Tensor& mask, const MaskSizes& sizes, int64_t appended);

}  // namespace attentive::compat
