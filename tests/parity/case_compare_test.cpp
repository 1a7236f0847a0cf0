#include "parity/case_compare.h"

#include <cmath>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include "support/special_numbers.h"

using attentive::compare_tensors;
using attentive::test::kNaN;

TEST_CASE("a row of a report passes up to its tolerance", "[case_compare]") {
  const auto want = at::tensor({1.0f, 2.0f});
  const auto row = compare_tensors("x", at::tensor({1.0f, 2.5f}), want, 0.5);
  CHECK(row.passed);
  CHECK(row.name == "x");
  CHECK(row.difference == 0.5);
  CHECK(row.tolerance == 0.5);
  CHECK(row.shape == std::vector<int64_t>{2});
  CHECK(row.note.empty());
  CHECK_FALSE(compare_tensors("x", at::tensor({1.0f, 2.5f}), want, 0.49).passed);
}

TEST_CASE("a row of a report says what no number says", "[case_compare]") {
  const auto shapes = compare_tensors("x", at::zeros({1, 2}), at::zeros({3, 2}), 1.0);
  CHECK_FALSE(shapes.passed);
  CHECK(shapes.note == "expected shape (3, 2), got (1, 2)");
  const auto one = at::tensor({1.0f, 0.0f}), nan = at::tensor({1.0, kNaN}, at::kFloat);
  CHECK(compare_tensors("x", one, nan, 1e30).note == "PyTorch's values hold NaN");
  CHECK(compare_tensors("x", nan, one, 1e30).note == "our values hold NaN");
  CHECK_FALSE(compare_tensors("x", nan, one, 1e30).passed);
}

TEST_CASE("NaN is replaced in rows without keys only", "[case_compare]") {
  const auto want = at::tensor({kNaN, kNaN, kNaN, 1.0, 5.0, 6.0}, at::kFloat).view({3, 2});
  int64_t rows = 0;
  const auto empty = at::tensor({1, 0, 1}).to(at::kBool);
  const auto result = attentive::replace_empty_rows(want, empty, at::tensor({7.0f, 8.0f}), rows);
  CHECK(rows == 1);
  CHECK(result[0].equal(at::tensor({7.0, 8.0})));
  CHECK(std::isnan(result[1][0].item<double>()));
  CHECK(result[2].equal(at::tensor({5.0, 6.0})));
}
