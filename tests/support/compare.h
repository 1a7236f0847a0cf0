#pragma once

// Numeric comparison for tests: by number, never by formatted text. NaN equals nothing.

#include <initializer_list>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <catch2/catch_test_macros.hpp>

namespace attentive::test {

struct Tolerance {
  double rtol;
  double atol;
};

// Full-precision comparisons of one dtype: float64 1e-12, float32 1e-5 / 2e-6, halves as in the parity cases.
Tolerance default_tolerance(at::ScalarType type, bool gradient = false);

// Empty if |got - want| <= atol + rtol * max|want| everywhere (and shapes agree), else one line that says
// what is wrong. Infinities must be equal.
std::string difference(const at::Tensor& got, const at::Tensor& want, Tolerance tolerance);
std::string difference(const at::Tensor& got, const at::Tensor& want);

// Bit for bit: same shape, dtype and bytes.
bool bit_equal(const at::Tensor& a, const at::Tensor& b);

// Rows of numbers as a float32 tensor.
at::Tensor table(const std::vector<std::vector<float>>& rows);

// Devices present: the CPU, and CUDA where there is one.
std::vector<at::Device> devices();

}  // namespace attentive::test

#define CHECK_CLOSE(got, want) CHECK(::attentive::test::difference((got), (want)) == "")
#define CHECK_WITHIN(got, want, ...) \
  CHECK(::attentive::test::difference((got), (want), ::attentive::test::Tolerance __VA_ARGS__) == "")
