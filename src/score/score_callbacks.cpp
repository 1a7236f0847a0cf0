#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <attentive/score/score_callbacks.h>
#include <attentive/score/tensors.h>
#include <attentive/score/tiles.h>

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
