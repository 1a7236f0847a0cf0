#pragma once

// What a test compares by: the numeric comparison of attentive::parity as checks, tables and devices.

#include <vector>

#include <ATen/core/Tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/parity/compare.h>

namespace attentive::test {

// Rows of numbers as a float32 tensor.
at::Tensor table(const std::vector<std::vector<float>>& rows);

// Devices present: the CPU, and CUDA where there is one.
std::vector<at::Device> devices();

// The distance of 1 to the next number of a dtype.
double unit_of(at::ScalarType type);

}  // namespace attentive::test

#define CHECK_CLOSE(got, want) CHECK(::attentive::difference((got), (want)) == "")
#define CHECK_WITHIN(got, want, ...) \
  CHECK(::attentive::difference((got), (want), ::attentive::Tolerance __VA_ARGS__) == "")
