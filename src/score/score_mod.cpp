#include <attentive/score/score_mod.h>

#include "core/check.h"

namespace attentive {
namespace {

std::shared_ptr<const detail::CapturedTensor> hold(const char* caller, const at::Tensor& tensor,
                                                   bool indices) {
  TORCH_CHECK_VALUE(tensor.dim() <= detail::kMostIndices, caller, ": expected a tensor of at most ",
                    detail::kMostIndices, " dimensions, got one of shape ", shape_string(tensor.sizes()));
  return std::make_shared<const detail::CapturedTensor>(detail::CapturedTensor{tensor, indices});
}

}  // namespace

Captured captured(const at::Tensor& tensor) {
  check_defined("captured", "tensor", tensor);
  TORCH_CHECK_TYPE(
      tensor.is_floating_point() || tensor.scalar_type() == at::kBool,
      "captured: expected a floating-point or bool tensor (captured_indices takes integers), got ",
      describe(tensor));
  return Captured(hold("captured", tensor, false));
}

CapturedIndices captured_indices(const at::Tensor& tensor) {
  check_defined("captured_indices", "tensor", tensor);
  TORCH_CHECK_TYPE(at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false),
                   "captured_indices: expected a tensor of integers, got ", describe(tensor));
  return CapturedIndices(hold("captured_indices", tensor, true));
}

}  // namespace attentive
