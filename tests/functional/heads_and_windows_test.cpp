#include <cmath>
#include <cstdint>
#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <attentive/core/options.h>
#include <attentive/functional/attention.h>
#include <attentive/functional/heads_and_windows.h>

#include "kernels/call.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/gradcheck.h"

using namespace attentive;
using attentive::test::error_of;

TEST_CASE("split_heads and merge_heads", "[heads]") {
  const auto features = at::randn({2, 5, 12});
  const auto heads = split_heads(features, 3);
  CHECK(heads.sizes() == at::IntArrayRef({2, 3, 5, 4}));
  CHECK(heads.data_ptr() == features.data_ptr());
  CHECK(heads[1][2][3][1].item<float>() == features[1][3][9].item<float>());
  CHECK(merge_heads(heads).equal(features));
  CHECK(merge_heads(heads).data_ptr() == features.data_ptr());
  CHECK(merge_heads(heads.contiguous()).equal(features));
  CHECK(error_of<c10::ValueError>([&] { split_heads(features, 5); }) ==
        "split_heads: expected num_heads to divide 12, got 5");
  CHECK(error_of<c10::ValueError>([&] { split_heads(features, 0); }) ==
        "split_heads: expected num_heads to divide 12, got 0");
  CHECK(error_of<c10::ValueError>([&] { split_heads(features[0], 3); }) ==
        "split_heads: expected x of shape (B, T, H * d), got (5, 12)");
  CHECK(error_of<c10::ValueError>([&] { merge_heads(features); }) ==
        "merge_heads: expected x of shape (B, H, T, d), got (2, 5, 12)");
}

TEST_CASE("alibi_slopes are those of the paper", "[alibi]") {
  CHECK(bit_equal(alibi_slopes(8).unsqueeze(0), test::table({{0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f,
                                                              0.015625f, 0.0078125f, 0.00390625f}})));
  const auto twelve = alibi_slopes(12);  // as Bloom, MPT and Falcon have them
  CHECK(twelve.slice(0, 0, 8).equal(alibi_slopes(8)));
  for (int64_t h = 8; h < 12; ++h)
    CHECK(twelve[h].item<float>() == static_cast<float>(std::exp2(7.5 - static_cast<double>(h))));
  CHECK(alibi_slopes(3).equal(at::tensor({0.0625f, 0.00390625f, 0.25f})));
  CHECK(alibi_slopes(1).item<float>() == 0.00390625f);
  CHECK(test::value_error([] { return alibi_slopes(0); }) == "alibi_slopes: expected num_heads > 0, got 0");
}

// Compares the bounds of causality and windows with their definition, pair by pair.

using kernels::Band;

namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

// The definition in docs/conventions.md: query i is aligned with key i + S - L, or with key i for TopLeft.
bool may_see(const AttentionOptions& options, int64_t L, int64_t S, int64_t i, int64_t j) {
  const int64_t aligned = i + S - L;
  if (options.causal == Causal::BottomRight && j > aligned) return false;
  if (options.causal == Causal::TopLeft && j > i) return false;
  if (options.window.left >= 0 && aligned - j > options.window.left) return false;
  return options.window.right < 0 || j - aligned <= options.window.right;
}

}  // namespace

TEST_CASE("a band sees the pairs that causality and window allow", "[band][short]") {
  const auto causal = GENERATE(Causal::None, Causal::BottomRight, Causal::TopLeft);
  const auto left = GENERATE(-1, 0, 1, 3, kHuge), right = GENERATE(-1, 0, 1, 3, kHuge);
  const AttentionOptions options{.causal = causal, .window = {left, right}};
  int64_t wrong = 0, unbounded = 0;
  for (int64_t L = 0; L < 7; ++L) {
    for (int64_t S = 0; S < 7; ++S) {
      const Band band = kernels::band_of(options, L, S);
      wrong += band.origin != S - L;
      int64_t hidden_left = 0, hidden_right = 0;
      for (int64_t i = 0; i < L; ++i) {
        for (int64_t j = 0; j < S; ++j) {
          const bool expected = may_see(options, L, S, i, j);
          wrong += (band.key_lo(i, S) <= j && j < band.key_hi(i, S)) != expected;
          wrong += (band.query_lo(j, L) <= i && i < band.query_hi(j, L)) != expected;
          hidden_left += j < band.key_lo(i, S);
          hidden_right += j >= band.key_hi(i, S);
        }
        wrong +=
            band.key_lo(i, S) < 0 || band.key_lo(i, S) > S || band.key_hi(i, S) < 0 || band.key_hi(i, S) > S;
      }
      int64_t seen = 0;
      for (int64_t j = 0; j < S; ++j) seen += band.query_lo(j, L) < band.query_hi(j, L);
      wrong += L > 0 && band.shows_every_key(L, S) != (seen == S);
      // The band has a bound exactly if that bound hides a pair.
      wrong += L > 0 && S > 0 && (band.has_lo() != (hidden_left > 0) || band.has_hi() != (hidden_right > 0));
      unbounded += band.unbounded();
    }
  }
  CHECK(wrong == 0);
  CHECK(unbounded > 0);
}

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
