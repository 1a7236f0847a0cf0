#include "functional/mask_check.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <attentive/functional/explain.h>

#include "core/check.h"
#include "core/normal_tensors.h"
#include "functional/problem_builder.h"

namespace attentive {
namespace {

using kernels::Problem;
using kernels::reference::Rectangle;
using kernels::reference::visible_pairs;

bool some(const at::Tensor& pairs) {
  return pairs.any().item<bool>();
}

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
  if (of_keys(problem.keep) && of_keys(problem.bias) && !problem.mask && !problem.sequences) {
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
  if (problem.keys() == 0 || problem.sequences) return false;
  const auto position = at::arange(problem.queries(), on_device(problem, at::kLong)) + problem.band.origin;
  const auto real = real_keys(problem);
  const auto padding = real.index_select(2, position.clamp(0, problem.keys() - 1)).bitwise_not();
  return queries.bitwise_and(padding.bitwise_and(position.ge(0)).bitwise_not()).any().item<bool>() == false;
}

// Whether all these queries belong to no sequence of a call by items.
bool are_no_tokens(const Problem& problem, const at::Tensor& queries) {
  if (!problem.by_item) return false;
  for (int64_t b = 0; b < problem.batch(); ++b) {
    const auto& place = (*problem.sequences)[static_cast<size_t>(b)];
    if (some(queries[b].narrow(1, place.first_query, place.queries))) return false;
  }
  return true;
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
                     are_padding(problem, blind)     ? " (all of them stand where the keys are padding)"
                     : are_no_tokens(problem, blind) ? " (all of them are beyond the lengths of their items)"
                                                     : "");
}

std::string reversed_mask(const Mask& mask, const AttentionOptions& options, const Problem& problem) {
  if (problem.queries() < 2 || problem.keys() < 2 || problem.sequences) return "";
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

namespace {

// The leading sizes of a q that fits all terms, if there is one; otherwise the problem builder reports the
// term that does not fit.
at::DimVector leading_sizes(const Mask& mask) {
  int64_t rank = 4;
  bool rank_3 = false;
  at::DimVector sizes;
  const auto for_each_pair_term = [&](auto&& visit) {
    for (const auto& term : mask.keep_terms()) visit(term);
    for (const auto& term : mask.bias_terms()) visit(term);
  };
  for_each_pair_term([&](const at::Tensor& term) {
    rank = std::max(rank, term.dim());
    rank_3 = rank_3 || term.dim() == 3;
  });
  sizes.assign(rank - 2, 1);
  for_each_pair_term([&](const at::Tensor& term) {
    for (int64_t d = 0; term.dim() == rank && d < rank - 2; ++d) {
      if (term.size(d) != 1) sizes[d] = term.size(d);
    }
    if (term.dim() == 3 && term.size(0) != 1) sizes[0] = term.size(0);
  });
  // Terms of keys have a single dimension for the whole batch.
  const auto batch = [&] { return c10::multiply_integers(sizes.begin(), sizes.end() - 1); };
  for (const auto& terms : {mask.key_keep_terms(), mask.key_length_terms(), mask.query_length_terms()}) {
    for (const auto& term : terms) {
      if (batch() == 1) sizes[0] = term.size(0);
    }
  }
  if (rank == 4 && rank_3 && sizes.back() == 1) sizes.pop_back();  // q of rank 3, without heads
  return sizes;
}

at::Device device_of(const Mask& mask) {
  for (const auto& terms : {mask.keep_terms(), mask.bias_terms(), mask.key_keep_terms()}) {
    if (!terms.empty()) return terms.front().device();
  }
  return at::kCPU;
}

// A problem of these sizes with this mask. Its q, k and v are expanded from one number, in a dtype that
// autocast does not change.
Problem problem_of_mask(const char* caller, const Mask& mask, const AttentionOptions& options,
                        int64_t queries, int64_t keys) {
  TORCH_CHECK_VALUE(queries >= 0 && keys >= 0, caller, ": expected queries >= 0 and keys >= 0, got ", queries,
                    " and ", keys);
  const auto device = device_of(mask);
  TORCH_CHECK_VALUE(!device.is_meta(), caller, ": expected a mask with numbers, got one on meta");
  const auto leading = leading_sizes(mask);
  const auto one = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(device));
  const auto tensor = [&](int64_t rows) {
    std::vector<int64_t> sizes(leading.begin(), leading.end());
    sizes.push_back(rows);
    sizes.push_back(1);
    return one.expand(sizes);
  };
  auto problem =
      normalize(caller, tensor(queries), tensor(keys), tensor(keys), options, {.mask = mask}).problem;
  if (problem.keep.defined()) problem.keep = without_repeats(problem.keep);
  if (problem.bias.defined()) problem.bias = without_repeats(problem.bias);
  return problem;
}

// Selects the batch item and head of the view from a tensor that broadcasts to all of them.
at::Tensor item_of(const at::Tensor& x, const MaskView& view) {
  return x.select(0, x.size(0) == 1 ? 0 : view.batch).select(0, x.size(1) == 1 ? 0 : view.head);
}

// The visible pairs: bool, broadcasts to (B, H, rows, cols).
at::Tensor visible_in(const Problem& problem, const Rectangle& part) {
  const auto visible = kernels::reference::visible_pairs(problem, part);
  return visible.defined() ? visible : at::ones({1, 1, 1, 1}, problem.q.options().dtype(at::kBool));
}

// The bias of visible pairs, 0 for hidden ones: floating, broadcasts to (B, H, rows, cols).
at::Tensor added_in(const Problem& problem, const Rectangle& part) {
  if (!problem.bias.defined()) return at::zeros({1, 1, 1, 1}, problem.q.options());
  return kernels::reference::cut(problem.bias, part)
      .masked_fill(visible_in(problem, part).bitwise_not(), 0.0);
}

// The lines of a part of the grid.
std::vector<std::string> lines_of(const Problem& problem, const Rectangle& part, const MaskView& view) {
  const auto on_host = [&](const at::Tensor& x) {
    return item_of(x, view).expand({part.rows, part.cols}).contiguous().cpu();
  };
  const auto visible = on_host(visible_in(problem, part)), biased = on_host(added_in(problem, part).ne(0));
  std::vector<std::string> lines(part.rows);
  for (int64_t offset = 0; offset < part.rows * part.cols; ++offset) {
    auto& line = lines[offset / part.cols];
    if (!line.empty()) line += ' ';
    line += !visible.const_data_ptr<bool>()[offset] ? '.' : biased.const_data_ptr<bool>()[offset] ? '+' : 'x';
  }
  return lines;
}

struct Run {
  int64_t first, count;
  int64_t end() const { return first + count; }
};

// The indices to print: all of 0 .. size - 1, or the first and the last of them.
std::vector<Run> runs_of(int64_t size, int64_t most) {
  if (size <= most) return {{0, size}};
  return {{0, most - most / 2}, {size - most / 2, most / 2}};
}

std::string grid(const Problem& problem, const MaskView& view) {
  const auto rows = runs_of(problem.queries(), view.most), cols = runs_of(problem.keys(), view.most);
  std::string text;
  for (const auto& row : rows) {
    if (row.first > 0) text += "…\n";
    std::vector<std::string> lines(row.count);
    for (const auto& col : cols) {
      const auto part = lines_of(problem, {row.first, row.count, col.first, col.count}, view);
      for (size_t n = 0; n < lines.size(); ++n) lines[n] += (col.first > 0 ? " … " : "") + part[n];
    }
    for (const auto& line : lines) text += line + "\n";
  }
  const auto left_out = [](const std::vector<Run>& runs, std::string_view what) {
    return runs.size() < 2 ? ""
                           : fmt::format("not shown: {} {} to {}\n", what, runs[0].end(), runs[1].first - 1);
  };
  return text + left_out(rows, "queries") + left_out(cols, "keys");
}

// A text with the smallest and the largest bias, without 0 and -inf.
std::string range_of_bias(const Problem& problem, const MaskView& view) {
  if (!problem.bias.defined()) return "";
  const auto bias = item_of(problem.bias, view);
  const auto numbers =
      bias.masked_select(bias.ne(0).bitwise_and(bias.ne(-std::numeric_limits<double>::infinity())));
  if (numbers.numel() == 0) return "";
  const auto least = numbers.min().item<double>(), largest = numbers.max().item<double>();
  return least == largest ? fmt::format(", + with a bias of {:g}", least)
                          : fmt::format(", + with a bias from {:g} to {:g}", least, largest);
}

// A text with the number of batch items and heads whose visible keys or biases differ from those of the view.
std::string differing_items(const Problem& problem, const MaskView& view) {
  auto differ = at::zeros({problem.batch(), problem.heads()}, problem.q.options().dtype(at::kBool));
  for_each_block(problem, [&](const Rectangle& part) {
    for (const auto& all : {visible_in(problem, part), added_in(problem, part)})
      differ.bitwise_or_(all.ne(item_of(all, view)).flatten(2).any(2));
  });
  const auto count = differ.sum().item<int64_t>();
  if (count == 0) return "";
  return fmt::format("{} of the other {} batch items and heads differ\n", count, differ.numel() - 1);
}

std::string described(const char* caller, const Mask& mask, const AttentionOptions& options, int64_t queries,
                      int64_t keys, const MaskView& view) {
  const NormalTensorsGuard kept;
  const auto problem = problem_of_mask(caller, mask, options, queries, keys);
  TORCH_CHECK_VALUE(view.batch >= 0 && view.batch < problem.batch(), caller,
                    ": expected a batch item in [0, ", problem.batch(), "), got ", view.batch);
  TORCH_CHECK_VALUE(view.head >= 0 && view.head < problem.heads(), caller, ": expected a head in [0, ",
                    problem.heads(), "), got ", view.head);
  TORCH_CHECK_VALUE(view.most >= 2, caller, ": expected to print most >= 2 rows and columns, got ",
                    view.most);
  std::string text = fmt::format("{} queries (down), {} keys (across)", queries, keys);
  if (problem.batch() > 1) text += fmt::format(", batch item {} of {}", view.batch, problem.batch());
  if (problem.heads() > 1) text += fmt::format(", head {} of {}", view.head, problem.heads());
  text += "\n";
  if (queries > 0 && keys > 0)
    text += grid(problem, view) + "x may attend, . may not" + range_of_bias(problem, view) + "\n";
  const auto without_keys = queries_without_keys(problem);
  if (!without_keys.empty()) text += without_keys + "\n";
  return text + differing_items(problem, view);
}

}  // namespace

std::string describe_mask(const Mask& mask, const AttentionOptions& options, int64_t queries, int64_t keys,
                          const MaskView& view) {
  return described("describe_mask", mask, options, queries, keys, view);
}

std::string Mask::describe(int64_t queries, int64_t keys, const MaskView& view) const {
  return described("Mask::describe", *this, {}, queries, keys, view);
}

}  // namespace attentive
