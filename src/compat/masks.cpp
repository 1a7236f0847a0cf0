#include "compat/masks.h"

#include <ATen/ops/constant_pad_nd.h>

#include "core/check.h"

namespace attentive::compat {
namespace {

void check_mask_type(const char* who, const char* name, const at::Tensor& mask) {
  TORCH_CHECK_TYPE(mask.scalar_type() == at::kBool || at::isFloatingType(mask.scalar_type()), who,
                   ": expected ", name, " to be bool (true hides) or floating (added to the scores), got ",
                   mask.scalar_type());
}

// Zero and false are what "visible, nothing added" looks like in both readings.
at::Tensor pad_keys(const at::Tensor& mask, int64_t appended) {
  return appended == 0 ? mask : at::constant_pad_nd(mask, {0, appended}, 0);
}

}  // namespace

Mask attention_mask(const char* who, const at::Tensor& attn_mask, const MaskSizes& sizes) {
  if (!attn_mask.defined()) return {};
  check_mask_type(who, "attn_mask", attn_mask);
  const int64_t first = sizes.batch * sizes.heads;
  const bool flat =
      attn_mask.dim() == 2 && attn_mask.size(0) == sizes.queries && attn_mask.size(1) == sizes.keys;
  const bool full = attn_mask.dim() == 3 && attn_mask.size(0) == first &&
                    attn_mask.size(1) == sizes.queries && attn_mask.size(2) == sizes.keys;
  TORCH_CHECK_VALUE(flat || full, who, ": expected attn_mask of shape ",
                    shape_string({sizes.queries, sizes.keys}), " (L, S) or ",
                    shape_string({first, sizes.queries, sizes.keys}),
                    sizes.batched ? " (N * num_heads, L, S)" : " (num_heads, L, S)", ", got ",
                    shape_string(attn_mask.sizes()));
  auto mask = pad_keys(attn_mask, sizes.appended);
  if (full) mask = mask.unflatten(0, {sizes.batch, sizes.heads});
  return mask.scalar_type() == at::kBool ? Mask::hide(mask) : Mask::bias(mask);
}

Mask padding_mask(const char* who, const at::Tensor& key_padding_mask, const MaskSizes& sizes) {
  if (!key_padding_mask.defined()) return {};
  check_mask_type(who, "key_padding_mask", key_padding_mask);
  const at::DimVector batched = {sizes.batch, sizes.keys};
  const at::DimVector unbatched = {sizes.keys};
  const at::IntArrayRef expected = sizes.batched ? batched : unbatched;
  TORCH_CHECK_VALUE(key_padding_mask.sizes() == expected, who, ": expected key_padding_mask of shape ",
                    shape_string(expected), sizes.batched ? " (N, S)" : " (S)", ", got ",
                    shape_string(key_padding_mask.sizes()));
  const auto mask =
      pad_keys(sizes.batched ? key_padding_mask : key_padding_mask.unsqueeze(0), sizes.appended);
  if (mask.scalar_type() == at::kBool) return Mask::key_keep(mask.logical_not());
  return Mask::bias(mask.unsqueeze(1).unsqueeze(1));
}

}  // namespace attentive::compat
