#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/functional/heads_and_windows.h>

#include "support/errors.h"

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
