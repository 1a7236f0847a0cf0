#include "compat/inputs.h"

#include <limits>

#include <ATen/autocast_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include "core/autocast_modes.h"
#include "core/check.h"

namespace attentive::compat {
namespace {

void check_mask_type(const char* caller, const char* name, const at::Tensor& mask) {
  check_defined(caller, name, mask);
  TORCH_CHECK_TYPE(mask.scalar_type() == at::kBool || at::isFloatingType(mask.scalar_type()), caller,
                   ": expected ", name, " to be bool (true hides) or floating (added to the scores), got ",
                   mask.scalar_type());
}

// Extends the mask by 0 or false for the appended keys, which in either kind of mask makes them visible
// without a bias.
at::Tensor pad_keys(const at::Tensor& mask, int64_t appended) {
  return appended == 0 ? mask : at::constant_pad_nd(mask, {0, appended}, 0);
}

}  // namespace

void check_input(const char* caller, const char* name, const at::Tensor& x, int64_t rank, int64_t features,
                 const at::Tensor& parameter) {
  check_defined(caller, name, x);
  TORCH_CHECK_VALUE(x.dim() == rank, caller, ": expected ", name, " of rank ", rank, ", got shape ",
                    shape_string(x.sizes()));
  TORCH_CHECK_VALUE(x.size(-1) == features, caller, ": expected ", name, " of ", features,
                    " features, got shape ", shape_string(x.sizes()));
  check_device(caller, name, x, parameter);
  TORCH_CHECK_TYPE(is_autocast(x.device()) || x.scalar_type() == parameter.scalar_type(), caller,
                   ": expected ", name, " of dtype ", parameter.scalar_type(), " like the parameters, got ",
                   x.scalar_type());
}

void check_sequences(const char* caller, const char* name, const at::Tensor& x, int64_t features,
                     bool batch_first) {
  check_defined(caller, name, x);
  TORCH_CHECK_VALUE(x.dim() == 2 || x.dim() == 3, caller, ": expected ", name, " of shape ",
                    batch_first ? "(N, T, " : "(T, N, ", features, ") or (T, ", features, "), got ",
                    shape_string(x.sizes()));
}

MaskSizes mask_sizes(const at::Tensor& query, const at::Tensor& key, int64_t heads, bool batch_first) {
  const bool batched = query.dim() == 3;
  const int64_t tokens = batched && batch_first ? 1 : 0;
  return {batched ? query.size(1 - tokens) : 1, heads, query.size(tokens), key.size(tokens), batched};
}

void check_attention_mask(const char* caller, const char* name, const at::Tensor& mask,
                          const MaskSizes& sizes) {
  if (!mask.defined()) return;
  check_mask_type(caller, name, mask);
  const at::DimVector flat = {sizes.queries, sizes.keys};
  const at::DimVector full = {sizes.batch * sizes.heads, sizes.queries, sizes.keys};
  TORCH_CHECK_VALUE(mask.sizes() == flat || mask.sizes() == full, caller, ": expected ", name, " of shape ",
                    shape_string(flat), " (L, S) or ", shape_string(full),
                    sizes.batched ? " (N * num_heads, L, S)" : " (num_heads, L, S)", ", got ",
                    shape_string(mask.sizes()));
}

void check_padding_mask(const char* caller, const char* name, const at::Tensor& mask,
                        const MaskSizes& sizes) {
  if (!mask.defined()) return;
  check_mask_type(caller, name, mask);
  at::DimVector expected = {sizes.keys};
  if (sizes.batched) expected = {sizes.batch, sizes.keys};
  TORCH_CHECK_VALUE(mask.sizes() == expected, caller, ": expected ", name, " of shape ",
                    shape_string(expected), sizes.batched ? " (N, S)" : " (S)", ", got ",
                    shape_string(mask.sizes()));
}

void check_masks(const char* caller, const CallMasks& masks, const MaskSizes& sizes) {
  check_attention_mask(caller, masks.mask_name, masks.mask, sizes);
  check_padding_mask(caller, masks.padding_name, masks.padding, sizes);
  TORCH_CHECK_VALUE(!masks.is_causal || masks.mask.defined(), caller, ": expected a ", masks.mask_name,
                    " with ", masks.hint_name, ", which is a hint about it, got none");
}

bool is_causal_mask(const at::Tensor& mask, std::optional<bool> given, int64_t tokens) {
  if (given) return *given;
  if (!mask.defined() || mask.is_meta() || mask.sizes() != at::IntArrayRef({tokens, tokens})) return false;
  const auto hidden = -std::numeric_limits<double>::infinity();  // true if the mask is bool
  return at::equal(mask, at::full({tokens, tokens}, hidden, mask.options().requires_grad(false)).triu(1));
}

Mask attention_mask(const at::Tensor& given, const MaskSizes& sizes, int64_t appended) {
  if (!given.defined()) return {};
  auto mask = pad_keys(given, appended);
  if (mask.dim() == 3) mask = mask.unflatten(0, {sizes.batch, sizes.heads});
  return mask.scalar_type() == at::kBool ? Mask::hide(mask) : Mask::bias(mask);
}

Mask padding_mask(const at::Tensor& given, const MaskSizes& sizes, int64_t appended) {
  if (!given.defined()) return {};
  const auto mask = pad_keys(sizes.batched ? given : given.unsqueeze(0), appended);
  if (mask.scalar_type() == at::kBool) return Mask::key_keep(mask.bitwise_not());
  return Mask::bias(mask.unsqueeze(1).unsqueeze(1));
}

}  // namespace attentive::compat
