#pragma once

// PyTorch's untyped masks, checked and turned into typed ones.

#include <attentive/core/mask.h>

namespace attentive::compat {

// The sizes that masks of one call must have.
struct MaskSizes {
  int64_t batch, heads, queries, keys;
  int64_t appended;  // keys added behind the sequence (bias_k, zeros): never hidden by a mask
  bool batched;
};

// attn_mask (L, S) or (N * H, L, S), ((H, L, S) unbatched). Bool: true hides; floating: added.
Mask attention_mask(const char* who, const at::Tensor& attn_mask, const MaskSizes& sizes);

// key_padding_mask (N, S), ((S) unbatched). Bool: true hides; floating: added.
Mask padding_mask(const char* who, const at::Tensor& key_padding_mask, const MaskSizes& sizes);

}  // namespace attentive::compat
