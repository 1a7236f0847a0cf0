#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/ne.h>

#include <attentive/core/mask.h>

#include "core/check.h"
#include "core/normal_tensors.h"

namespace attentive {
namespace {

// Returns a bool mask unchanged and converts integers by "non-zero". Floating numbers are refused, because
// they could also mean "added to the scores".
at::Tensor as_bool(std::string_view caller, const at::Tensor& mask) {
  check_defined(caller, "mask", mask);
  if (mask.scalar_type() == at::kBool) return mask;
  TORCH_CHECK_TYPE(at::isIntegralType(mask.scalar_type(), /*includeBool=*/false), caller,
                   ": expected a bool or integer tensor (non-zero: true), got ", describe(mask),
                   "; for numbers that are added to the scores use Mask::bias");
  const NormalTensorsGuard kept;  // a mask may be made under c10::InferenceMode and used in training
  return mask.ne(0);
}

void check_lengths(std::string_view caller, const at::Tensor& lengths) {
  check_defined(caller, "lengths", lengths);
  TORCH_CHECK_TYPE(at::isIntegralType(lengths.scalar_type(), /*includeBool=*/false), caller,
                   ": expected an integer tensor, got ", describe(lengths));
  TORCH_CHECK_VALUE(lengths.dim() == 1, caller, ": expected lengths of shape (B,), got ", describe(lengths));
}

void append(std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

void unsqueeze_rank_3(std::vector<at::Tensor>& terms, int64_t dim) {
  for (auto& term : terms) {
    if (term.dim() == 3) term = term.unsqueeze(dim);
  }
}

}  // namespace

Mask::Mask(const at::Tensor& keep) {
  check_defined("Mask", "mask", keep);
  TORCH_CHECK_TYPE(
      keep.scalar_type() == at::kBool, "Mask: expected a bool tensor (true: may attend), got ",
      attentive::describe(keep),
      "; say Mask::keep(t != 0) if 1 means \"may attend\" and 0 means \"hidden\", or Mask::bias(t) if the"
      " numbers are added to the scores");
  keep_.push_back(keep);
}

Mask Mask::keep(const at::Tensor& mask) {
  Mask result;
  result.keep_.push_back(as_bool("Mask::keep", mask));
  return result;
}

Mask Mask::hide(const at::Tensor& mask) {
  const auto hidden = as_bool("Mask::hide", mask);
  const NormalTensorsGuard kept;
  Mask result;
  result.keep_.push_back(hidden.bitwise_not());
  return result;
}

Mask Mask::bias(const at::Tensor& bias) {
  check_floating("Mask::bias", "bias", bias);
  Mask result;
  result.bias_.push_back(bias);
  return result;
}

Mask Mask::key_keep(const at::Tensor& mask) {
  auto keep = as_bool("Mask::key_keep", mask);
  TORCH_CHECK_VALUE(keep.dim() == 2, "Mask::key_keep: expected a mask of shape (B, S), got ",
                    attentive::describe(mask));
  Mask result;
  result.key_keep_.push_back(std::move(keep));
  return result;
}

Mask Mask::key_lengths(const at::Tensor& lengths) {
  check_lengths("Mask::key_lengths", lengths);
  Mask result;
  result.key_lengths_.push_back(lengths);
  return result;
}

Mask Mask::query_lengths(const at::Tensor& lengths) {
  check_lengths("Mask::query_lengths", lengths);
  Mask result;
  result.query_lengths_.push_back(lengths);
  return result;
}

Mask Mask::per_batch(const Mask& mask) {
  Mask result = mask;
  unsqueeze_rank_3(result.keep_, 1);
  unsqueeze_rank_3(result.bias_, 1);
  return result;
}

Mask Mask::per_head(const Mask& mask) {
  Mask result = mask;
  unsqueeze_rank_3(result.keep_, 0);
  unsqueeze_rank_3(result.bias_, 0);
  return result;
}

Mask& Mask::operator&=(const Mask& other) {
  if (this == &other) return *this &= Mask(other);
  append(keep_, other.keep_);
  append(bias_, other.bias_);
  append(key_keep_, other.key_keep_);
  append(key_lengths_, other.key_lengths_);
  append(query_lengths_, other.query_lengths_);
  return *this;
}

bool Mask::empty() const {
  return keep_.empty() && bias_.empty() && key_keep_.empty() && key_lengths_.empty() &&
         query_lengths_.empty();
}

}  // namespace attentive
