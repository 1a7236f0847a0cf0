#pragma once

// Helpers for comparisons in tests: the numeric comparison of attentive::parity as checks, tables, and
// devices.

#include <limits>
#include <vector>

#include <ATen/core/Tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/parity/compare.h>

namespace attentive::test {

/// Makes a float32 tensor from rows of numbers.
at::Tensor table(const std::vector<std::vector<float>>& rows);

/// Normal random numbers in float64.
at::Tensor doubles(at::IntArrayRef sizes);

/// The largest absolute difference from numbers in float64.
double largest_error(const at::Tensor& got, const at::Tensor& want);

/// The available devices: the CPU, and CUDA if present.
std::vector<at::Device> devices();

/// The distance from 1 to the next larger number of a dtype.
double unit_of(at::ScalarType type);

/// The largest sum of the magnitudes of the terms that add up to the gradient of a head's ALiBi slope, from
/// the gradients of the logits (B, H, L, S). Terms may cancel, and the rounding of every one remains.
double slope_terms(const at::Tensor& of_logits);

}  // namespace attentive::test

#define CHECK_CLOSE(got, want) CHECK(::attentive::difference((got), (want)) == "")
#define CHECK_WITHIN(got, want, ...) \
  CHECK(::attentive::difference((got), (want), ::attentive::Tolerance __VA_ARGS__) == "")

namespace attentive::test {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace attentive::test
