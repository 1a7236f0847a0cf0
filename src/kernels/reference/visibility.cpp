#include "kernels/reference/visibility.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

namespace attentive::kernels::reference {
namespace {

void restrict_to(at::Tensor& visible, const at::Tensor& also) {
  visible = visible.defined() ? visible.bitwise_and(also) : also;
}

// The visible pairs of a call whose batch items are sequences: none outside them.
at::Tensor visible_pairs_of_items(const Problem& problem, const Rectangle& part) {
  const auto bools = problem.q.options().dtype(at::kBool);
  std::vector<at::Tensor> items;
  for (size_t n = 0; n < problem.sequences->size(); ++n) {
    const auto& place = (*problem.sequences)[n];
    // The part of the rectangle that lies within the sequence, counted from its first pair.
    const auto within = [](int64_t at, int64_t first, int64_t count) {
      return std::clamp<int64_t>(at - first, 0, count);
    };
    const int64_t row = within(part.row0, place.first_query, place.queries),
                  rows = within(part.row0 + part.rows, place.first_query, place.queries) - row,
                  col = within(part.col0, place.first_key, place.keys),
                  cols = within(part.col0 + part.cols, place.first_key, place.keys) - col;
    const auto pairs = visible_pairs(sequence_of(problem, n), {row, rows, col, cols});
    items.push_back(at::zeros({1, pairs.defined() ? pairs.size(1) : 1, part.rows, part.cols}, bools));
    auto shown = items.back()
                     .narrow(2, std::max<int64_t>(place.first_query - part.row0, 0), rows)
                     .narrow(3, std::max<int64_t>(place.first_key - part.col0, 0), cols);
    pairs.defined() ? shown.copy_(pairs) : shown.fill_(true);
  }
  return at::cat(items, 0);
}

}  // namespace

at::Tensor cut(const at::Tensor& tensor, const Rectangle& part) {
  auto result = tensor;
  if (result.size(2) != 1) result = result.slice(2, part.row0, part.row0 + part.rows);
  if (result.size(3) != 1) result = result.slice(3, part.col0, part.col0 + part.cols);
  return result;
}

at::Tensor visible_pairs(const Problem& problem, const Rectangle& part) {
  if (problem.sequences) return visible_pairs_of_items(problem, part);
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
  if (problem.mask) {
    detail::TensorEvaluation evaluation{.numbers = problem.q.options(), .replaced = problem.captured};
    if (visible.defined()) evaluation.hidden = visible.bitwise_not();
    const auto mask = problem.mask.function()->mask(places_of(problem, part, evaluation)).pairs;
    const auto pairs =
        mask.to(problem.q.device()).expand(at::infer_size(mask.sizes(), {1, 1, part.rows, part.cols}));
    restrict_to(visible, pairs);
  }
  return visible;
}

detail::TensorPairs places_of(const Problem& problem, const Rectangle& part,
                              const detail::TensorEvaluation& evaluation) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(problem.q.device());
  const auto range = [&](int64_t first, int64_t count, int dimension) {
    std::array<int64_t, 4> sizes = {1, 1, 1, 1};
    sizes[static_cast<size_t>(dimension)] = count;
    return detail::TensorIndex(at::arange(first, first + count, options).view(sizes), &evaluation);
  };
  const auto number = [&](int64_t n) {
    return detail::TensorIndex(at::scalar_tensor(n, options).view({1, 1, 1, 1}), &evaluation);
  };
  return {range(problem.batch_offset, problem.batch(), 0),
          range(problem.head_offset, problem.heads(), 1),
          range(problem.key_offset + problem.band.position(part.row0), part.rows, 2),
          range(problem.key_offset + part.col0, part.cols, 3),
          number(problem.whole_queries ? problem.whole_queries : problem.queries()),
          number(problem.whole_keys ? problem.whole_keys : problem.keys())};
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

namespace attentive::kernels {

at::Tensor stack_groups(const at::Tensor& x, int64_t kv_heads) {
  if (x.size(1) == kv_heads) return x;
  return x.reshape({x.size(0), kv_heads, x.size(1) / kv_heads * x.size(2), x.size(3)});
}

at::Tensor unstack_groups(const at::Tensor& x, int64_t heads) {
  if (x.size(1) == heads) return x;
  return x.reshape({x.size(0), heads, x.size(1) * x.size(2) / heads, x.size(3)});
}

at::Tensor without_unseen(const at::Tensor& rows, const at::Tensor& visible, int64_t kv_heads) {
  auto seen = visible.any(2);  // (B or 1, H or 1, S or 1)
  if (seen.size(1) > kv_heads) {
    seen = seen.reshape({seen.size(0), kv_heads, seen.size(1) / kv_heads, seen.size(2)}).any(2);
  }
  return rows.masked_fill(seen.bitwise_not().unsqueeze(3), 0.0);
}

}  // namespace attentive::kernels
