#include "functional/mask_check.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

namespace attentive {
namespace {

using kernels::Problem;
using kernels::reference::Rectangle;
using kernels::reference::visible_pairs;

// Whether a term is equal for every query, as padding is.
bool of_keys(const at::Tensor& term) {
  return !term.defined() || term.size(2) == 1;
}

at::TensorOptions on_device(const Problem& problem, at::ScalarType type) {
  return problem.q.options().dtype(type);
}

// The keys that the terms of keys alone let a query see: bool (B or 1, H or 1, S). A mask function is a term
// of pairs.
at::Tensor real_keys(Problem problem) {
  problem.band = {};
  problem.mask = {};
  if (!of_keys(problem.keep)) problem.keep.reset();
  if (!of_keys(problem.bias)) problem.bias.reset();
  auto real = visible_pairs(problem, {0, 1, 0, problem.keys()});
  if (!real.defined()) real = at::ones({1, 1, 1, 1}, on_device(problem, at::kBool));
  return real.squeeze(2).expand({real.size(0), real.size(1), problem.keys()});
}

// Whether each query sees any key: bool (B or 1, H or 1, L).
at::Tensor sees_any(const Problem& problem) {
  if (of_keys(problem.keep) && of_keys(problem.bias) && !problem.mask) {
    // Query i sees the real keys in [lo, hi), whose number is the difference of two cumulative counts.
    const auto count = at::constant_pad_nd(real_keys(problem).to(at::kLong).cumsum(2), {1, 0});
    const auto i = at::arange(problem.queries(), on_device(problem, at::kLong));
    const auto lo = (i + problem.band.lo).clamp_(0, problem.keys());
    const auto hi = (i + (problem.band.hi + 1)).clamp_(0, problem.keys());
    return count.index_select(2, hi).gt(count.index_select(2, lo));
  }
  std::vector<at::Tensor> blocks;
  for_each_block(problem,
                 [&](const Rectangle& part) { blocks.push_back(visible_pairs(problem, part).any(3)); });
  return at::cat(blocks, 2);
}

// Whether all these queries (bool, in the shape of `sees_any`) are aligned with keys that are padding.
bool are_padding(const Problem& problem, const at::Tensor& queries) {
  if (problem.keys() == 0) return false;
  const auto position = at::arange(problem.queries(), on_device(problem, at::kLong)) + problem.band.origin;
  const auto real = real_keys(problem);
  const auto padding = real.index_select(2, position.clamp(0, problem.keys() - 1)).bitwise_not();
  return queries.bitwise_and(padding.bitwise_and(position.ge(0)).bitwise_not()).any().item<bool>() == false;
}

// The terms of pairs, each as bool (N, L, S), true: visible.
std::vector<at::Tensor> pair_terms(const Mask& mask, const Problem& problem) {
  std::vector<at::Tensor> terms;
  const auto add = [&](const at::Tensor& given, bool bias) {
    const auto term = without_repeats(given.detach());
    if (term.size(-2) != problem.queries() || term.size(-1) != problem.keys()) return;
    const auto visible = bias ? term.ne(-std::numeric_limits<double>::infinity()) : term;
    terms.push_back(visible.reshape({-1, problem.queries(), problem.keys()}));
  };
  for (const auto& term : mask.keep_terms()) add(term, false);
  for (const auto& term : mask.bias_terms()) add(term, true);
  return terms;
}

bool some(const at::Tensor& pairs) {
  return pairs.any().item<bool>();
}

// Whether the visible pairs are exactly those with j - i >= diagonal whose key some query sees.
bool is_upper_triangle(const at::Tensor& visible, int64_t diagonal) {
  const auto triangle = visible.any(-2, /*keepdim=*/true).expand_as(visible).triu(diagonal);
  return !some(visible.ne(triangle));
}

std::string reversed_term(const at::Tensor& visible, const AttentionOptions& options) {
  const int64_t L = visible.size(1), S = visible.size(2);
  const bool causal = options.causal != Causal::None;
  const int64_t diagonal = options.causal == Causal::TopLeft ? 0 : S - L;
  if (!causal && L != S) return "";  // cross-attention has no known order
  const bool depends_on_query = some(visible.ne(visible.narrow(1, 0, 1)));
  if (!depends_on_query || !some(visible.triu(diagonal + 1))) return "";
  if (causal) {
    if (some(visible.tril(diagonal - 1))) return "";
    return fmt::format("with Causal::{}, it leaves a query no key but that of its own position",
                       options.causal == Causal::TopLeft ? "TopLeft" : "BottomRight");
  }
  if (is_upper_triangle(visible, 1)) return "it shows a query only the keys after it";
  return is_upper_triangle(visible, 0) ? "it shows a query only its own key and those after it" : "";
}

}  // namespace

void for_each_block(const Problem& problem, const std::function<void(const Rectangle&)>& visit) {
  constexpr int64_t kPairs = 1 << 24;
  const int64_t row = std::max<int64_t>(problem.batch() * problem.heads() * problem.keys(), 1);
  const int64_t rows = std::max<int64_t>(kPairs / row, 1);
  for (int64_t i = 0; i < problem.queries(); i += rows)
    visit({i, std::min(rows, problem.queries() - i), 0, problem.keys()});
}

std::string queries_without_keys(const Problem& given) {
  if (given.batch() == 0 || given.queries() == 0) return "";
  Problem problem = given;
  if (problem.keep.defined()) problem.keep = without_repeats(problem.keep);
  if (problem.bias.defined()) problem.bias = without_repeats(problem.bias);
  const auto blind = sees_any(problem).bitwise_not();
  const auto places = blind.nonzero();
  if (places.size(0) == 0) return "";
  // If the mask lacks the dimension, queries are counted for every batch item, but only once for all heads.
  const int64_t items = problem.batch(), heads = blind.size(1);
  const int64_t repeats = blind.size(0) == 1 ? items : 1;
  std::string first = fmt::format("query {}", places[0][2].item<int64_t>());
  if (items > 1) first += fmt::format(" of batch item {}", places[0][0].item<int64_t>());
  if (heads > 1) first += fmt::format(", head {}", places[0][1].item<int64_t>());
  const char* counted = heads > 1 ? " of all batch items and heads" : items > 1 ? " of all batch items" : "";
  return fmt::format("{} of {} queries{} see no key, the first is {}; their weights and output are 0{}",
                     places.size(0) * repeats, items * heads * problem.queries(), counted, first,
                     are_padding(problem, blind) ? " (all of them stand where the keys are padding)" : "");
}

std::string reversed_mask(const Mask& mask, const AttentionOptions& options, const Problem& problem) {
  if (problem.queries() < 2 || problem.keys() < 2) return "";
  for (const auto& term : pair_terms(mask, problem)) {
    const auto why = reversed_term(term, options);
    if (why.empty()) continue;
    return fmt::format(
        "the mask looks reversed for the causal order: {}; in Mask::keep true means that a query may attend, "
        "in "
        "Mask::hide that it may not",
        why);
  }
  return "";
}

}  // namespace attentive
