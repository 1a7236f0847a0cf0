#include "kernels/reference/visibility.h"

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>

namespace attentive::kernels::reference {
namespace {

void restrict_to(at::Tensor& visible, const at::Tensor& also) {
  visible = visible.defined() ? visible.bitwise_and(also) : also;
}

}  // namespace

at::Tensor cut(const at::Tensor& tensor, const Rectangle& part) {
  auto result = tensor;
  if (result.size(2) != 1) result = result.slice(2, part.row0, part.row0 + part.rows);
  if (result.size(3) != 1) result = result.slice(3, part.col0, part.col0 + part.cols);
  return result;
}

at::Tensor visible_pairs(const Problem& problem, const Rectangle& part) {
  at::Tensor visible;
  const auto index = at::TensorOptions().dtype(at::kLong).device(problem.q.device());
  const auto i = at::arange(part.row0, part.row0 + part.rows, index).unsqueeze(1);
  const auto j = at::arange(part.col0, part.col0 + part.cols, index);
  const auto rank_4 = [](const at::Tensor& pairs) {
    return pairs.view({1, 1, pairs.size(0), pairs.size(1)});
  };

  if (problem.band.has_lo()) restrict_to(visible, rank_4(j.ge(i + problem.band.lo)));
  if (problem.band.has_hi()) restrict_to(visible, rank_4(j.le(i + problem.band.hi)));
  if (problem.keep.defined()) restrict_to(visible, cut(problem.keep, part));
  if (problem.bias.defined()) {
    restrict_to(visible, cut(problem.bias, part).detach().ne(-std::numeric_limits<double>::infinity()));
  }
  if (problem.key_keep.defined()) {
    const auto keys = problem.key_keep.slice(1, part.col0, part.col0 + part.cols);
    restrict_to(visible, keys.view({keys.size(0), 1, 1, keys.size(1)}));
  }
  if (problem.key_lengths.defined()) restrict_to(visible, j.lt(problem.key_lengths.view({-1, 1, 1, 1})));
  return visible;
}

bool has_huge_negative_rows(const Problem& problem) {
  if (!problem.bias.defined() || problem.bias.numel() == 0) return false;
  constexpr double kLowest = -1e3;
  const bool alone = !problem.keep.defined() && !problem.key_keep.defined() &&
                     !problem.key_lengths.defined() && problem.band.unbounded();
  const auto bias = problem.bias.detach();
  const auto largest = alone ? bias.amax(-1) : bias;
  return largest.lt(kLowest).logical_and_(largest.isinf().logical_not_()).any().item<bool>();
}

}  // namespace attentive::kernels::reference
