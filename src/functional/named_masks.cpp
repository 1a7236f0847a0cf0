#include <algorithm>
#include <limits>
#include <vector>

#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <attentive/functional/named_masks.h>
#include <attentive/score/score_mod.h>

#include "core/check.h"
#include "core/normal_tensors.h"

namespace attentive {
namespace {

// The largest index of vector code.
constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();

void check_integers(const char* caller, const char* name, const at::Tensor& tensor) {
  check_defined(caller, name, tensor);
  TORCH_CHECK_TYPE(at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false), caller, ": expected ",
                   name, " to be integers, got ", describe(tensor));
}

// Returns a number of tokens that is at least `least`. It may be beyond kMostTokens, which no call has.
int64_t at_least(const char* caller, const char* name, int64_t number, int64_t least) {
  TORCH_CHECK_VALUE(number >= least, caller, ": expected ", name, " to be at least ", least, ", got ",
                    number);
  return number;
}

int64_t in_range(const char* caller, const char* name, int64_t number, int64_t least, int64_t most) {
  TORCH_CHECK_VALUE(number >= least && number <= most, caller, ": expected ", name, " in [", least, ", ",
                    most, "], got ", number);
  return number;
}

// The places of the tokens of a forest in depth-first order: token a is token b or an ancestor of it if
// first[a] <= first[b] < last[a].
struct Descendants {
  std::vector<int32_t> first, last;
};

Descendants descendants(const int64_t* parents, size_t count) {
  std::vector<int32_t> size(count, 1);
  for (size_t n = count; n-- > 0;) {
    if (parents[n] >= 0) size[static_cast<size_t>(parents[n])] += size[n];
  }
  Descendants found{std::vector<int32_t>(count), std::vector<int32_t>(count)};
  std::vector<int32_t> next(count);  // the place of a token's next child
  int32_t next_root = 0;
  for (size_t n = 0; n < count; ++n) {
    int32_t& place = parents[n] < 0 ? next_root : next[static_cast<size_t>(parents[n])];
    found.first[n] = place;
    found.last[n] = place + size[n];
    next[n] = place + 1;
    place += size[n];
  }
  return found;
}

}  // namespace

MaskMod document_mask(const at::Tensor& documents) {
  check_integers("document_mask", "documents", documents);
  TORCH_CHECK_VALUE(documents.dim() == 1 || documents.dim() == 2,
                    "document_mask: expected documents of shape (S) or (B, S), got ", describe(documents));
  const auto document = captured_indices(documents);
  if (documents.dim() == 1)
    return mask_mod([document](auto pair) { return document(pair.query) == document(pair.key); },
                    "document_mask");
  return mask_mod(
      [document](auto pair) { return document(pair.batch, pair.query) == document(pair.batch, pair.key); },
      "document_mask");
}

MaskMod prefix_lm_mask(int64_t prefix) {
  const int64_t shown = at_least("prefix_lm_mask", "prefix", prefix, 0);
  return mask_mod([shown](auto pair) { return (pair.key <= pair.query) | (pair.key < shown); },
                  fmt::format("prefix_lm_mask({})", prefix));
}

MaskMod prefix_lm_mask(const at::Tensor& prefix) {
  check_integers("prefix_lm_mask", "prefix", prefix);
  TORCH_CHECK_VALUE(prefix.dim() == 1, "prefix_lm_mask: expected prefix of shape (B), got ",
                    describe(prefix));
  if (prefix.is_cpu() && prefix.numel() > 0)
    at_least("prefix_lm_mask", "prefix", prefix.to(at::kLong).min().item<int64_t>(), 0);
  const auto shown = captured_indices(prefix);
  return mask_mod([shown](auto pair) { return (pair.key <= pair.query) | (pair.key < shown(pair.batch)); },
                  "prefix_lm_mask");
}

MaskMod dilated_mask(int64_t window, int64_t step) {
  in_range("dilated_mask", "window", window, 1, kMostTokens);
  in_range("dilated_mask", "step", step, 1, kMostTokens);
  return mask_mod(
      [window, step](auto pair) {
        const auto distance = pair.query - pair.key;
        return (distance >= 0) & (distance < window) & (distance % step == 0);
      },
      fmt::format("dilated_mask({}, {})", window, step));
}

MaskMod global_local_mask(int64_t global, int64_t left, int64_t right) {
  const char* const caller = "global_local_mask";
  const auto side = [&](const char* name, int64_t keys) {
    const int64_t shown = at_least(caller, name, keys, -1);
    return shown < 0 ? kMostTokens : shown;
  };
  const int64_t first = at_least(caller, "global", global, 0);
  const int64_t before = side("left", left), after = side("right", right);
  return mask_mod(
      [first, before, after](auto pair) {
        const auto in_window = (pair.query - pair.key <= before) & (pair.key - pair.query <= after);
        return (pair.query < first) | (pair.key < first) | in_window;
      },
      fmt::format("global_local_mask({}, {}, {})", global, left, right));
}

MaskMod neighbourhood_2d_mask(int64_t height, int64_t width, int64_t radius, ImageBorder border) {
  const char* const caller = "neighbourhood_2d_mask";
  in_range(caller, "height", height, 1, kMostTokens);
  in_range(caller, "width", width, 1, kMostTokens / height);
  const int64_t reach = at_least(caller, "radius", radius, 0);
  const bool shifted = border == ImageBorder::Shifted;
  const int64_t fits = (std::min(height, width) - 1) / 2;
  TORCH_CHECK_VALUE(!shifted || reach <= fits, caller, ": expected radius to be at most ", fits,
                    " with ImageBorder::Shifted, so that 2 radius + 1 pixels fit into an image of ", height,
                    " x ", width, ", got ", radius);
  // The centre of a neighbourhood stays this far from the border.
  const int64_t margin = shifted ? reach : 0;
  const int64_t last_row = height - 1 - margin, last_column = width - 1 - margin, pixels = height * width;
  return mask_mod(
      [=](auto pair) {
        const auto row = min(max(pair.query / width, margin), last_row);
        const auto column = min(max(pair.query % width, margin), last_column);
        const auto near = (abs(row - pair.key / width) <= reach) & (abs(column - pair.key % width) <= reach);
        return near & (pair.query >= 0) & (pair.query < pixels) & (pair.key < pixels);
      },
      fmt::format("neighbourhood_2d_mask({}, {}, {})", height, width, radius));
}

MaskMod block_diffusion_mask(int64_t length, int64_t block) {
  in_range("block_diffusion_mask", "length", length, 1, kMostTokens / 2);
  const int64_t size = at_least("block_diffusion_mask", "block", block, 1);
  return mask_mod(
      [length, size](auto pair) {
        const auto of_query = pair.query % length / size;
        const auto of_key = pair.key % length / size;
        const auto clean_query = pair.query >= length, clean_key = pair.key >= length;
        const auto own = (of_query == of_key) & !(clean_query ^ clean_key);
        const auto earlier = (of_key < of_query) & clean_key;
        return (own | earlier) & (pair.query >= 0) & (pair.query < 2 * length) & (pair.key < 2 * length);
      },
      fmt::format("block_diffusion_mask({}, {})", length, block));
}

MaskMod tree_mask(const at::Tensor& parents) {
  check_integers("tree_mask", "parents", parents);
  TORCH_CHECK_VALUE(parents.dim() == 1 && parents.numel() > 0 && parents.numel() <= kMostTokens,
                    "tree_mask: expected parents of shape (N) with N > 0, got ", describe(parents));
  const NormalTensorsGuard kept;
  const auto numbers = parents.to(at::kCPU, at::kLong).contiguous();
  const int64_t count = numbers.numel();
  const auto* const parent = numbers.const_data_ptr<int64_t>();
  for (int64_t n = 0; n < count; ++n) {
    TORCH_CHECK_VALUE(parent[n] >= -1 && parent[n] < n, "tree_mask: expected the parent of draft token ", n,
                      " to be -1 or a token before it, got ", parent[n]);
  }
  const auto places = descendants(parent, static_cast<size_t>(count));
  const auto held = [&](const std::vector<int32_t>& list) {
    return captured_indices(at::tensor(list, at::kInt).to(parents.device()));
  };
  const auto first = held(places.first), last = held(places.last);
  return mask_mod(
      [=](auto pair) {
        const auto start = pair.keys - count;
        const auto query = max(pair.query - start, 0);
        const auto key = max(pair.key - start, 0);
        const auto ancestor = (first(key) <= first(query)) & (first(query) < last(key));
        const auto both_drafted = (pair.key >= start) & (pair.query >= start);
        return ((pair.key < start) & (pair.key <= pair.query)) | (both_drafted & ancestor);
      },
      "tree_mask");
}

}  // namespace attentive
