#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <attentive/score/score_callbacks.h>
#include <attentive/score/score_mod.h>
#include <attentive/score/tensors.h>
#include <attentive/score/tiles.h>

#include "core/check.h"

namespace attentive::detail {

// Evaluates the function once over places that are all 0, two batch items and two heads, and looks at the
// sizes of the result.
void PairFunction::evaluate() const {
  std::call_once(evaluated_, [&] {
    const at::NoGradGuard no_gradient;
    const TensorEvaluation evaluation{.numbers = at::TensorOptions().dtype(at::kFloat), .listed = &captured_};
    const auto place = [&](int64_t batch, int64_t heads) {
      return TensorIndex(at::zeros({batch, heads, 1, 1}, at::kLong), &evaluation);
    };
    const TensorPairs pair{place(2, 1), place(1, 2),     place(1, 1),
                           place(1, 1), place(1, 1) + 1, place(1, 1) + 1};
    const auto result = is_mask_ ? mask(pair).pairs : score(TensorScore(at::zeros({1, 1, 1, 1})), pair).pairs;
    by_batch_ = result.dim() == 4 && result.size(0) == 2;
    by_head_ = result.dim() >= 3 && result.size(result.dim() - 3) == 2;
  });
}

const std::vector<std::shared_ptr<const CapturedTensor>>& PairFunction::captured() const {
  evaluate();
  return captured_;
}

TileMask PairFunction::mask_of_tile(const TilePairs&) const {
  return {};
}

bool PairFunction::by_batch() const {
  evaluate();
  return by_batch_;
}

bool PairFunction::by_head() const {
  evaluate();
  return by_head_;
}

}  // namespace attentive::detail

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
