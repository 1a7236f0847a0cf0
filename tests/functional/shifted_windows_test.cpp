#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/functional/heads_and_windows.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/gradcheck.h"

using namespace attentive;
using attentive::test::value_error;

TEST_CASE("window_partition cuts row by row, and window_merge undoes it", "[shifted_windows]") {
  const auto image = at::arange(24, at::kInt).view({1, 4, 6, 1});
  const auto windows = window_partition(image, {2, 3});
  CHECK(windows.sizes() == at::IntArrayRef({4, 6, 1}));
  CHECK(bit_equal(windows[1].flatten(), at::tensor({3, 4, 5, 9, 10, 11})));
  CHECK(bit_equal(windows[2].flatten(), at::tensor({12, 13, 14, 18, 19, 20})));
  // With a shift, the first window begins at row 1, column 2, and the last one wraps around.
  const auto shifted = window_partition(image, {2, 3}, {1, 2});
  CHECK(bit_equal(shifted[0].flatten(), at::tensor({8, 9, 10, 14, 15, 16})));
  CHECK(bit_equal(shifted[3].flatten(), at::tensor({23, 18, 19, 5, 0, 1})));
  const auto batch = at::randn({3, 4, 6, 5});
  for (const std::array<int64_t, 2> shift : {std::array<int64_t, 2>{0, 0}, {1, 0}, {0, 2}, {1, 2}}) {
    const auto cut = window_partition(batch, {2, 3}, shift);
    CHECK(cut.sizes() == at::IntArrayRef({12, 6, 5}));
    CHECK(bit_equal(window_merge(cut, {4, 6}, {2, 3}, shift), batch));
  }
  CHECK(bit_equal(window_partition(batch, {2, 3}).narrow(0, 4, 4),
                  window_partition(batch.narrow(0, 1, 1), {2, 3})));
  const auto none = window_partition(at::randn({2, 0, 6, 5}), {2, 3});
  CHECK(none.sizes() == at::IntArrayRef({0, 6, 5}));
}

TEST_CASE("Gradients go through windows", "[shifted_windows]") {
  CHECK(test::gradcheck(
            [](const std::vector<at::Tensor>& in) {
              return window_merge(window_partition(in[0], {2, 2}, {1, 1}).square(), {4, 2}, {2, 2}, {1, 0});
            },
            {at::randn({1, 4, 2, 3}, at::kDouble)}) == "");
}

TEST_CASE("shifted_window_mask shows neighbours of the image alone", "[shifted_windows]") {
  constexpr int64_t height = 6, width = 8, rows = 3, columns = 4;
  const auto number = at::arange(height * width).view({1, height, width, 1});
  for (const int64_t down : {0, 1, 2}) {
    for (const int64_t across : {0, 1, 3}) {
      const auto mask = shifted_window_mask({height, width}, {rows, columns}, {down, across});
      CHECK(mask.scalar_type() == at::kBool);
      CHECK(mask.sizes() == at::IntArrayRef({4, 12, 12}));
      const auto tokens = window_partition(number, {rows, columns}, {down, across}).squeeze(2);
      for (int64_t n = 0; n < 4; ++n) {
        for (int64_t i = 0; i < 12; ++i) {
          for (int64_t j = 0; j < 12; ++j) {
            // Two tokens of a window are neighbours if they are as far apart in the image as in the window.
            const auto a = tokens[n][i].item<int64_t>(), b = tokens[n][j].item<int64_t>();
            const bool neighbours = a / width - b / width == i / columns - j / columns &&
                                    a % width - b % width == i % columns - j % columns;
            CHECK(mask[n][i][j].item<bool>() == neighbours);
          }
        }
      }
    }
  }
}

TEST_CASE("Windows that do not fit are refused by name", "[shifted_windows][errors]") {
  const auto x = at::randn({1, 4, 6, 2});
  CHECK(value_error([&] {
          window_partition({}, {2, 3});
        }) == "window_partition: expected x to be a tensor, got an undefined one");
  CHECK(value_error([&] {
          window_partition(x[0], {2, 3});
        }) == "window_partition: expected x of shape (B, height, width, C), got (4, 6, 2)");
  CHECK(value_error([&] {
          window_partition(x, {2, 0});
        }) == "window_partition: expected a window of positive size, got 2 x 0");
  CHECK(value_error([&] {
          window_partition(x, {2, 4});
        }) == "window_partition: expected a window of 2 x 4 to divide the image, got 4 x 6");
  CHECK(value_error([&] {
          window_partition(x, {3, 3});
        }) == "window_partition: expected a window of 3 x 3 to divide the image, got 4 x 6");
  CHECK(value_error([&] {
          window_partition(x, {2, 3}, {2, 0});
        }) == "window_partition: expected a shift below the window of 2 x 3, got 2 x 0");
  CHECK(value_error([&] {
          window_partition(x, {2, 3}, {0, -1});
        }) == "window_partition: expected a shift below the window of 2 x 3, got 0 x -1");
  CHECK(value_error([&] {
          window_merge({}, {4, 6}, {2, 3});
        }) == "window_merge: expected windows to be a tensor, got an undefined one");
  CHECK(value_error([&] {
          window_merge(at::randn({5, 6, 2}), {4, 6}, {2, 3});
        }) == "window_merge: expected windows of shape (B * 4, 6, C), got (5, 6, 2)");
  CHECK(value_error([&] {
          window_merge(at::randn({4, 5, 2}), {4, 6}, {2, 3});
        }) == "window_merge: expected windows of shape (B * 4, 6, C), got (4, 5, 2)");
  CHECK(value_error([&] {
          window_merge(at::randn({4, 6, 2}), {4, 5}, {2, 3});
        }) == "window_merge: expected a window of 2 x 3 to divide the image, got 4 x 5");
  CHECK(value_error([&] {
          shifted_window_mask({4, 6}, {2, 3}, {0, 3});
        }) == "shifted_window_mask: expected a shift below the window of 2 x 3, got 0 x 3");
}
