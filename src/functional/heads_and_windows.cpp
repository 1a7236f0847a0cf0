#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <attentive/functional/heads_and_windows.h>

#include "core/check.h"

namespace attentive {

at::Tensor split_heads(const at::Tensor& x, int64_t num_heads) {
  check_defined("split_heads", "x", x);
  TORCH_CHECK_VALUE(x.dim() == 3, "split_heads: expected x of shape (B, T, H * d), got ",
                    shape_string(x.sizes()));
  TORCH_CHECK_VALUE(num_heads > 0 && x.size(2) % num_heads == 0, "split_heads: expected num_heads to divide ",
                    x.size(2), ", got ", num_heads);
  return x.unflatten(2, {num_heads, x.size(2) / num_heads}).transpose(1, 2);
}

at::Tensor merge_heads(const at::Tensor& x) {
  check_defined("merge_heads", "x", x);
  TORCH_CHECK_VALUE(x.dim() == 4, "merge_heads: expected x of shape (B, H, T, d), got ",
                    shape_string(x.sizes()));
  TORCH_CHECK_VALUE(x.size(1) > 0, "merge_heads: expected at least one head, got x of shape ",
                    shape_string(x.sizes()));
  return x.transpose(1, 2).flatten(2);
}

namespace {

using Pair = std::array<int64_t, 2>;  // rows and columns

void check_windows(const char* caller, Pair size, Pair window, Pair shift) {
  TORCH_CHECK_VALUE(window[0] > 0 && window[1] > 0, caller, ": expected a window of positive size, got ",
                    window[0], " x ", window[1]);
  TORCH_CHECK_VALUE(size[0] >= 0 && size[1] >= 0 && size[0] % window[0] == 0 && size[1] % window[1] == 0,
                    caller, ": expected a window of ", window[0], " x ", window[1],
                    " to divide the image, got ", size[0], " x ", size[1]);
  TORCH_CHECK_VALUE(shift[0] >= 0 && shift[0] < window[0] && shift[1] >= 0 && shift[1] < window[1], caller,
                    ": expected a shift below the window of ", window[0], " x ", window[1], ", got ",
                    shift[0], " x ", shift[1]);
}

}  // namespace

at::Tensor window_partition(const at::Tensor& x, Pair window, Pair shift) {
  constexpr const char* caller = "window_partition";
  check_defined(caller, "x", x);
  TORCH_CHECK_VALUE(x.dim() == 4, caller, ": expected x of shape (B, height, width, C), got ",
                    shape_string(x.sizes()));
  check_windows(caller, {x.size(1), x.size(2)}, window, shift);
  const auto rolled = shift == Pair{0, 0} ? x : x.roll({-shift[0], -shift[1]}, {1, 2});
  return rolled.unflatten(1, {x.size(1) / window[0], window[0]})
      .unflatten(3, {x.size(2) / window[1], window[1]})
      .transpose(2, 3)
      .flatten(3, 4)
      .flatten(0, 2);
}

at::Tensor window_merge(const at::Tensor& windows, Pair size, Pair window, Pair shift) {
  constexpr const char* caller = "window_merge";
  check_defined(caller, "windows", windows);
  check_windows(caller, size, window, shift);
  const auto down = size[0] / window[0], across = size[1] / window[1];
  const bool fits = windows.dim() == 3 && windows.size(1) == window[0] * window[1] &&
                    (down * across == 0 ? windows.size(0) == 0 : windows.size(0) % (down * across) == 0);
  TORCH_CHECK_VALUE(fits, caller, ": expected windows of shape (B * ", down * across, ", ",
                    window[0] * window[1], ", C), got ", shape_string(windows.sizes()));
  const auto batch = down * across == 0 ? 0 : windows.size(0) / (down * across);
  const auto rolled = windows.unflatten(1, {window[0], window[1]})
                          .unflatten(0, {batch, down, across})
                          .transpose(2, 3)
                          .flatten(3, 4)
                          .flatten(1, 2);
  return shift == Pair{0, 0} ? rolled : rolled.roll({shift[0], shift[1]}, {1, 2});
}

at::Tensor shifted_window_mask(Pair size, Pair window, Pair shift, at::Device device) {
  check_windows("shifted_window_mask", size, window, shift);
  const auto positions = at::TensorOptions(at::kLong).device(device);
  // A row or column came from the other end of the image if it is among the last `shift` ones.
  const auto rows = at::arange(size[0], positions).ge(size[0] - shift[0]).to(at::kLong).mul(2).unsqueeze(1);
  const auto columns = at::arange(size[1], positions).ge(size[1] - shift[1]).to(at::kLong);
  const auto regions = window_partition((rows + columns).unsqueeze(0).unsqueeze(3), window).squeeze(2);
  return regions.unsqueeze(1).eq(regions.unsqueeze(2));
}

}  // namespace attentive
