// Transposes of every size and pair of types, and conversions to bfloat16, by the vector code of every
// instruction set that this CPU has, against ATen's.

#include <bit>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <catch2/catch_test_macros.hpp>

#include "kernels/gemm/products.h"
#include "kernels/simd/elementwise.h"
#include "kernels/vector_codes.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;
namespace cpu = attentive::kernels::cpu;

namespace {

using cpu::bf16_t;
using cpu::f16_t;

template <class T>
constexpr at::ScalarType kTypeOf = at::kFloat;
template <>
constexpr at::ScalarType kTypeOf<bf16_t> = at::kBFloat16;
template <>
constexpr at::ScalarType kTypeOf<f16_t> = at::kHalf;

// Numbers of all magnitudes, those below the smallest normal one included, some infinite.
float any_number(std::mt19937& random) {
  const float number = std::bit_cast<float>(static_cast<uint32_t>(random()));
  return number == number ? number : std::numeric_limits<float>::infinity();
}

template <class From, class To>
bool transposes(const cpu::VectorCode& code, int64_t rows, int64_t cols) {
  std::mt19937 random(static_cast<uint32_t>(rows * 1000 + cols));
  auto numbers = at::empty({rows, cols});
  for (int64_t n = 0; n < numbers.numel(); ++n) numbers.data_ptr<float>()[n] = any_number(random);
  const auto from = numbers.to(kTypeOf<From>);
  // Numbers beyond the rows of the result must stay.
  const auto room = at::empty({cols, rows + 3}, kTypeOf<To>).fill_(7);
  code.products->transpose(
      cpu::Matrix<const From>{static_cast<const From*>(from.const_data_ptr()), rows, cols, cols},
      cpu::Matrix<To>{static_cast<To*>(room.mutable_data_ptr()), cols, rows, rows + 3});
  return bit_equal(room.narrow(1, 0, rows), from.t().to(kTypeOf<To>)) &&
         room.narrow(1, rows, 3).eq(7).all().template item<bool>();
}

}  // namespace

TEST_CASE("transposes of every size and pair of types are ATen's, on every instruction set", "[transpose]") {
  for (const auto* code : vector_codes()) {
    for (const int64_t rows : {1, 3, 15, 16, 17, 31, 32, 33, 48, 63, 64, 80}) {
      for (const int64_t cols : {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 64, 96}) {
        INFO(code->name << ": " << rows << " x " << cols);
        CHECK(transposes<float, float>(*code, rows, cols));
        CHECK(transposes<bf16_t, bf16_t>(*code, rows, cols));
        CHECK(transposes<bf16_t, float>(*code, rows, cols));
        CHECK(transposes<f16_t, float>(*code, rows, cols));
        CHECK(transposes<float, bf16_t>(*code, rows, cols));
        CHECK(transposes<float, f16_t>(*code, rows, cols));
      }
    }
  }
}

TEST_CASE("numbers are rounded to bfloat16 as c10 rounds them, on every instruction set", "[transpose]") {
  using Limits = std::numeric_limits<float>;
  std::vector<float> numbers = {
      0.0f,          -0.0f,  Limits::min(), Limits::denorm_min(), -1e-40f,
      Limits::max(), 1e-39f, -1e-45f,       Limits::infinity(),   -Limits::infinity()};
  // Every middle of two neighbours, and the numbers beside it.
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    for (const uint32_t low : {0x7fffu, 0x8000u, 0x8001u})
      numbers.push_back(std::bit_cast<float>((bits << 16) | low));
  }
  std::mt19937 random(5);
  for (int n = 0; n < 100000; ++n) numbers.push_back(any_number(random));
  const auto count = static_cast<int64_t>(numbers.size());
  std::vector<bf16_t> rounded(numbers.size());
  for (const auto* code : vector_codes()) {
    code->elementwise->convert(numbers.data(), rounded.data(), count);
    int64_t different = 0;
    for (size_t n = 0; n < numbers.size(); ++n) different += rounded[n] != c10::BFloat16(numbers[n]).x;
    INFO(code->name);
    CHECK(different == 0);

    for (const uint32_t bits : {0x7f800001u, 0x7fbfffffu, 0x7fc00000u, 0xffc12345u}) {
      const std::vector<float> nan(16, std::bit_cast<float>(bits));
      code->elementwise->convert(nan.data(), rounded.data(), 16);
      CHECK(rounded[3] == ((bits >> 16) | 0x40u));
    }
  }
}
