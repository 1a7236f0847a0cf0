// The arrays by which tests of the kernels run fewer combinations than all.

#include "support/covering_array.h"

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "kernels/gemm/products.h"
#include "kernels/simd/elementwise.h"
#include "kernels/vector_codes.h"
#include "support/compare.h"

using namespace attentive::test;

namespace {

using Row = std::vector<size_t>;

// The combinations of levels in which these factors occur in the rows.
std::set<Row> combinations_in(const std::vector<Row>& rows, const Row& factors) {
  std::set<Row> all;
  for (const auto& row : rows) {
    Row levels;
    for (const size_t factor : factors) levels.push_back(row[factor]);
    all.insert(levels);
  }
  return all;
}

}  // namespace

TEST_CASE("covering array: any so many factors meet in every combination of their levels",
          "[covering][short]") {
  const auto levels =
      GENERATE(Row{16, 6, 5, 3}, Row{3, 2, 3, 2}, Row{3, 3, 2, 2, 3}, Row{1, 4, 2}, Row{2, 2, 2});
  const auto pairs = covering_array(levels, 2), triples = covering_array(levels, 3);
  for (const auto* rows : {&pairs, &triples}) {
    CHECK(std::set<Row>(rows->begin(), rows->end()).size() == rows->size());
    for (const auto& row : *rows) {
      REQUIRE(row.size() == levels.size());
      for (size_t factor = 0; factor < levels.size(); ++factor) CHECK(row[factor] < levels[factor]);
    }
  }
  for (size_t a = 0; a < levels.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      CHECK(combinations_in(pairs, {a, b}).size() == levels[a] * levels[b]);
      for (size_t c = 0; c < b; ++c)
        CHECK(combinations_in(triples, {a, b, c}).size() == levels[a] * levels[b] * levels[c]);
    }
  }
}

TEST_CASE("covering array: as small as can be for the gradients of a bias, and all combinations at last",
          "[covering][short]") {
  // The two or three factors with the most levels need so many rows.
  CHECK(covering_array({16, 6, 5, 3}, 2).size() == 16 * 6);
  CHECK(covering_array({16, 6, 5, 3}, 3).size() == 16 * 6 * 5);
  CHECK(covering_array({16, 6, 5, 3}, 4).size() == 16 * 6 * 5 * 3);
  CHECK(covering_array({2, 3}, 3).size() == 2 * 3);
}

TEST_CASE("covering array: three factors meet on a processor's own instructions, two on fewer",
          "[covering][short]") {
  const bool limited =
      std::getenv("ATEN_CPU_CAPABILITY") != nullptr || std::getenv("ATTENTIVE_TEST_KERNELS") != nullptr;
  CHECK(limited_instructions() == limited);
  CHECK(rows_for_kernels({4, 3, 2, 2}) == covering_array({4, 3, 2, 2}, limited ? 2 : 3));
}

// Transposes of every size and pair of types, and conversions to bfloat16, by the vector code of every
// instruction set that this CPU has, against ATen's.

using namespace attentive;
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
