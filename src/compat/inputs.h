#pragma once

// Checks of inputs and masks in PyTorch's conventions, with errors that name the argument, and conversion of
// such masks to typed ones.

#include <optional>

#include <attentive/compat/transformer_layers.h>
#include <attentive/core/mask.h>

namespace attentive::compat {

/// Throws unless x has this rank, this many features, and the device and dtype of `parameter` (any dtype
/// under autocast).
void check_input(const char* caller, const char* name, const at::Tensor& x, int64_t rank, int64_t features,
                 const at::Tensor& parameter);

/// Throws unless x is (tokens, features), or has a batch dimension as well: the first one with batch_first,
/// else the second.
void check_sequences(const char* caller, const char* name, const at::Tensor& x, int64_t features,
                     bool batch_first);

/// The sizes that determine the shapes of a call's masks.
struct MaskSizes {
  int64_t batch, heads, queries, keys;
  bool batched;
};

/// The sizes of a call whose query and key have rank 2, or rank 3 with the batch as the first dimension
/// (batch_first) or the second.
MaskSizes mask_sizes(const at::Tensor& query, const at::Tensor& key, int64_t heads, bool batch_first);

/// Throws unless the mask is (L, S) or (N * H, L, S), (H, L, S) if unbatched, bool or floating, or undefined.
void check_attention_mask(const char* caller, const char* name, const at::Tensor& mask,
                          const MaskSizes& sizes);

/// Throws unless the mask is (N, S), (S) if unbatched, bool or floating, or undefined.
void check_padding_mask(const char* caller, const char* name, const at::Tensor& mask, const MaskSizes& sizes);

/// The masks of one attention call, with their names in the caller's signature.
struct CallMasks {
  const char* mask_name;
  const at::Tensor& mask;
  const char* padding_name;
  const at::Tensor& padding;
  const char* hint_name;
  bool is_causal;  ///< a hint about `mask`
};

/// Throws unless both masks fit, and unless `mask` is given if `is_causal` is.
void check_masks(const char* caller, const CallMasks& masks, const MaskSizes& sizes);

/// Whether a mask is the causal mask for this many tokens: as `given`, or else by comparison, as in Python.
/// The answer does not change the result, but a kernel that knows it need not read the mask.
bool is_causal_mask(const at::Tensor& mask, std::optional<bool> given, int64_t tokens);

/// Convert checked masks to typed ones: true hides in a bool mask, and a floating mask is added. `appended`
/// keys after the sequence (bias_k, zeros) stay visible.
Mask attention_mask(const at::Tensor& mask, const MaskSizes& sizes, int64_t appended);
Mask padding_mask(const at::Tensor& mask, const MaskSizes& sizes, int64_t appended);

LayerNormOptions norm_options(const TransformerLayerOptions& options);

/// Throws unless `src` and its masks fit a layer of these options; `parameter` is one of its weights.
void check_encoder_call(const char* caller, const TransformerLayerOptions& options,
                        const at::Tensor& parameter, const at::Tensor& src, const CallMasks& masks);

/// Throws unless `tgt`, the memory and their masks fit a decoder layer of these options. `memory_name` is the
/// memory's name in the caller's signature.
void check_decoder_call(const char* caller, const TransformerLayerOptions& options,
                        const at::Tensor& parameter, const at::Tensor& tgt, const char* memory_name,
                        const at::Tensor& memory, const CallMasks& masks, const CallMasks& memory_masks);

}  // namespace attentive::compat
