#pragma once

// Checks of PyTorch's inputs and masks, by name, and the conversion of such masks to typed ones.

#include <optional>

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

// The masks of one attention, with the names that they have in the caller's signature.
struct CallMasks {
  const char* mask_name;
  const at::Tensor& mask;
  const char* padding_name;
  const at::Tensor& padding;
  const char* hint_name;
  bool is_causal;  // a hint about `mask`
};

// Throws unless both masks fit, and there is a mask if there is a hint about it.
void check_masks(const char* who, const CallMasks& masks, const MaskSizes& sizes);

// Whether a mask is the causal one of that many tokens: as the caller says, or else by comparing, as Python
// does. The numbers do not depend on it, but a kernel that knows need not read the mask.
bool is_causal_mask(const at::Tensor& mask, std::optional<bool> given, int64_t tokens);

// Checked masks as typed ones: bool hides where true, floating is added. `appended` keys after the sequence
// (bias_k, zeros) stay visible.
Mask attention_mask(const at::Tensor& mask, const MaskSizes& sizes, int64_t appended);
Mask padding_mask(const at::Tensor& mask, const MaskSizes& sizes, int64_t appended);

}  // namespace attentive::compat
