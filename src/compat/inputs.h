#pragma once

// PyTorch's inputs and untyped masks, checked by name; the masks then become typed ones.

#include <attentive/core/mask.h>

namespace attentive::compat {

// Throws unless x has that rank, that many features, and device and dtype of `parameter` (under autocast any
// dtype).
void check_input(const char* who, const char* name, const at::Tensor& x, int64_t rank, int64_t features,
                 const at::Tensor& parameter);

// Throws unless x is (tokens, features), or that with a batch dimension where batch_first says.
void check_sequences(const char* who, const char* name, const at::Tensor& x, int64_t features,
                     bool batch_first);

// The sizes that masks of one call must have.
struct MaskSizes {
  int64_t batch, heads, queries, keys;
  bool batched;
};

// Sizes of a call whose query and key are of rank 2, or of rank 3 with the batch where batch_first says.
MaskSizes mask_sizes(const at::Tensor& query, const at::Tensor& key, int64_t heads, bool batch_first);

// (L, S) or (N * H, L, S), ((H, L, S) unbatched), bool or floating; undefined passes.
void check_attention_mask(const char* who, const char* name, const at::Tensor& mask, const MaskSizes& sizes);

// (N, S), ((S) unbatched), bool or floating; undefined passes.
void check_padding_mask(const char* who, const char* name, const at::Tensor& mask, const MaskSizes& sizes);

// Checked masks as typed ones: bool hides where true, floating is added. `appended` keys behind the sequence
// (bias_k, zeros) stay visible.
Mask attention_mask(const at::Tensor& mask, const MaskSizes& sizes, int64_t appended);
Mask padding_mask(const at::Tensor& mask, const MaskSizes& sizes, int64_t appended);

}  // namespace attentive::compat
