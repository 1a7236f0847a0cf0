// Arithmetic of places, for every instruction set that this CPU has, against loops over int64. A mask
// function compares each result with the expected one, so that no digit is lost.

#include <limits>

#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include "score/evaluate.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr int64_t kLeast = std::numeric_limits<int32_t>::min(), kMost = std::numeric_limits<int32_t>::max();

int64_t floor_quotient(int64_t a, int64_t b) {
  const int64_t cut = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? cut - 1 : cut;
}

const std::vector<int32_t>& numbers() {
  static const std::vector<int32_t> values = [] {
    std::vector<int32_t> result = {static_cast<int32_t>(kLeast),
                                   static_cast<int32_t>(kLeast + 1),
                                   static_cast<int32_t>(kMost),
                                   static_cast<int32_t>(kMost - 1),
                                   16777217,
                                   -16777217,
                                   1 << 30,
                                   -(1 << 30),
                                   2147483520,
                                   -2147483520};
    for (int32_t i = -300; i <= 300; ++i) result.push_back(i);
    for (int32_t i = 0; i < 1000; ++i)
      result.push_back(static_cast<int32_t>(kLeast + i * int64_t{4294967} + i % 7));
    return result;
  }();
  return values;
}

// Both functions take a number of `numbers()` or an index, and a place: `mask` compares the index with the
// expected one, which `exact` calculates. Results beyond int32 are not compared.
template <class Make, class Exact>
void check(const std::string& what, const RowPlace& place, const Make& make, const Exact& exact) {
  const auto count = static_cast<int64_t>(numbers().size());
  std::vector<int32_t> want;
  std::vector<bool> fits;
  for (int64_t c = 0; c < count; ++c) {
    const int64_t result = exact(int64_t{numbers()[static_cast<size_t>(c)]}, place.first_key + c);
    fits.push_back(result >= kLeast && result <= kMost);
    want.push_back(fits.back() ? static_cast<int32_t>(result) : 0);
  }
  const auto origin = static_cast<int64_t>(place.first_key);
  const auto values = captured_indices(at::tensor(numbers(), at::kInt)),
             expected = captured_indices(at::tensor(want, at::kInt));
  const auto mask = mask_mod(
      [=](auto pair) { return make(values(pair.key - origin), pair) == expected(pair.key - origin); });
  for (const auto& [name, set] : vector_sets()) {
    for (const int64_t c : hidden_columns(mask, set, place, count)) {
      if (!fits[static_cast<size_t>(c)]) continue;
      FAIL_CHECK(what << ", " << name << ": wrong in column " << c << " for the number "
                      << numbers()[static_cast<size_t>(c)] << " and the key " << place.first_key + c
                      << ", expected " << want[static_cast<size_t>(c)]);
      break;
    }
  }
  SUCCEED();
}

}  // namespace

TEST_CASE("indices: division and remainder round down", "[score][indices]") {
  for (const int64_t by : {int64_t{1}, int64_t{-1}, int64_t{2}, int64_t{3}, int64_t{-3}, int64_t{7},
                           int64_t{16}, int64_t{-16}, int64_t{127}, int64_t{1000}, int64_t{-4097},
                           int64_t{65536}, int64_t{16777217}, int64_t{1} << 30, kMost, -kMost, kLeast}) {
    const auto text = " by " + std::to_string(by);
    for (const int64_t first : {int64_t{0}, int64_t{5}, int64_t{-1000}, int64_t{16777200}, kMost - 2000}) {
      const RowPlace place{.batch = 3, .head = -5, .query = 100, .first_key = first};
      check(
          "varying /" + text, place, [=](auto x, auto) { return x / by; },
          [=](int64_t x, int64_t) { return floor_quotient(x, by); });
      check(
          "varying %" + text, place, [=](auto x, auto) { return x % by; },
          [=](int64_t x, int64_t) { return x - by * floor_quotient(x, by); });
      check(
          "ascending /" + text, place, [=](auto, auto pair) { return pair.key / by; },
          [=](int64_t, int64_t key) { return floor_quotient(key, by); });
      check(
          "ascending %" + text, place, [=](auto, auto pair) { return pair.key % by; },
          [=](int64_t, int64_t key) { return key - by * floor_quotient(key, by); });
      check(
          "descending /" + text, place, [=](auto, auto pair) { return (pair.query - pair.key) / by; },
          [=](int64_t, int64_t key) { return floor_quotient(100 - key, by); });
      check(
          "uniform /" + text, place, [=](auto, auto pair) { return pair.head / by; },
          [=](int64_t, int64_t) { return floor_quotient(-5, by); });
      check(
          "uniform %" + text, place, [=](auto, auto pair) { return pair.head % by; },
          [=](int64_t, int64_t) { return -5 - by * floor_quotient(-5, by); });
      check(
          "number / uniform index", place, [=](auto, auto pair) { return by / pair.batch; },
          [=](int64_t, int64_t) { return floor_quotient(by, 3); });
    }
  }
}

TEST_CASE("indices: sums, differences, products, min, max, abs and where of every kind of index",
          "[score][indices]") {
  for (const int64_t first : {int64_t{0}, int64_t{-700}, int64_t{1} << 20, kMost - 2000}) {
    const RowPlace place{.batch = 2, .head = 3, .query = 40, .first_key = first};
    check(
        "uniform and uniform", place,
        [](auto, auto pair) { return pair.batch * pair.query - (pair.head + 5) * -pair.query + pair.batch; },
        [](int64_t, int64_t) { return int64_t{2 * 40 + 8 * 40 + 2}; });
    check(
        "ascending and uniform", place, [](auto, auto pair) { return pair.head + pair.key - 7 + pair.query; },
        [](int64_t, int64_t key) { return 3 + key - 7 + 40; });
    check(
        "descending and uniform", place,
        [](auto, auto pair) { return 9 - pair.key + pair.head - pair.query; },
        [](int64_t, int64_t key) { return 9 - key + 3 - 40; });
    check(
        "descending, negated", place, [](auto, auto pair) { return 1 - (pair.query - pair.key); },
        [](int64_t, int64_t key) { return 1 - (40 - key); });
    check(
        "minus ascending, plus", place, [](auto, auto pair) { return +(-pair.key) + pair.key; },
        [](int64_t, int64_t) { return int64_t{0}; });
    check(
        "ascending and descending", place, [](auto, auto pair) { return pair.key - (pair.query - pair.key); },
        [](int64_t, int64_t key) { return 2 * key - 40; });
    check(
        "varying and ascending", place, [](auto x, auto pair) { return x % 1000 + pair.key - pair.query; },
        [](int64_t x, int64_t key) { return x - 1000 * floor_quotient(x, 1000) + key - 40; });
    check(
        "varying and descending", place, [](auto x, auto pair) { return (pair.query - pair.key) - x; },
        [](int64_t x, int64_t key) { return 40 - key - x; });
    check(
        "products", place, [](auto x, auto pair) { return (x % 100) * pair.query + 3 * (pair.key % 512); },
        [](int64_t x, int64_t key) {
          return (x - 100 * floor_quotient(x, 100)) * 40 + 3 * (key - 512 * floor_quotient(key, 512));
        });
    check(
        "min and max", place, [](auto x, auto pair) { return max(min(x, pair.key), pair.query - pair.key); },
        [](int64_t x, int64_t key) { return std::max(std::min(x, key), 40 - key); });
    check(
        "abs", place, [](auto x, auto pair) { return abs(x + 1) - abs(pair.query - pair.key); },
        [](int64_t x, int64_t key) { return std::abs(x + 1) - std::abs(40 - key); });
    check(
        "where", place,
        [](auto x, auto pair) { return where((x < pair.key) | (pair.key % 3 == 0), x, pair.head); },
        [](int64_t x, int64_t key) {
          return x < key || key - 3 * floor_quotient(key, 3) == 0 ? x : int64_t{3};
        });
  }
}

TEST_CASE("indices: comparisons", "[score][indices]") {
  const RowPlace place{.batch = 2, .head = 3, .query = 40, .first_key = -600};
  check(
      "<", place, [](auto x, auto pair) { return where(x < pair.key, pair.head, 0); },
      [](int64_t x, int64_t key) { return x < key ? 3 : 0; });
  check(
      "<=", place, [](auto x, auto pair) { return where(x <= pair.key, pair.head, 0); },
      [](int64_t x, int64_t key) { return x <= key ? 3 : 0; });
  check(
      ">", place, [](auto x, auto pair) { return where(x > pair.query - pair.key, pair.head, 0); },
      [](int64_t x, int64_t key) { return x > 40 - key ? 3 : 0; });
  check(
      ">=", place, [](auto x, auto pair) { return where(x >= 17, pair.head, pair.key); },
      [](int64_t x, int64_t key) { return x >= 17 ? 3 : key; });
  check(
      "!=", place, [](auto x, auto pair) { return where(!(x != pair.key), pair.head, pair.key); },
      [](int64_t x, int64_t key) { return x == key ? 3 : key; });
}

// A program may say "no limit" by the largest int64.
TEST_CASE("indices: numbers beyond int32 compare as they are", "[score][indices]") {
  const RowPlace place{.batch = 2, .head = 3, .query = 40, .first_key = -600};
  for (const int64_t large :
       {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(), int64_t{1} << 32,
        -(int64_t{1} << 32), (int64_t{1} << 40) + 5, kMost + 1, kLeast - 1}) {
    const auto text = " " + std::to_string(large);
    check(
        "<" + text, place, [=](auto, auto pair) { return where(pair.key < large, pair.head, 0); },
        [=](int64_t, int64_t key) { return key < large ? 3 : 0; });
    check(
        ">=" + text, place,
        [=](auto, auto pair) { return where(pair.query - pair.key >= large, pair.head, 0); },
        [=](int64_t, int64_t key) { return 40 - key >= large ? 3 : 0; });
    check(
        "==" + text, place, [=](auto x, auto pair) { return where(x % 1000 == large, pair.head, 0); },
        [](int64_t, int64_t) { return int64_t{0}; });
    check(
        "min with" + text, place, [=](auto, auto pair) { return min(max(pair.key, -large / 2), large); },
        [=](int64_t, int64_t key) { return std::min(std::max(key, -large / 2), large); });
    check(
        "/" + text, place, [=](auto, auto pair) { return pair.key / large; },
        [=](int64_t, int64_t key) { return floor_quotient(key, large); });
    check(
        "%" + text, place, [=](auto, auto pair) { return pair.key % large; },
        [=](int64_t, int64_t key) { return key - large * floor_quotient(key, large); });
    check(
        "shifted beyond int32 and back by" + text, place,
        [=](auto, auto pair) { return (pair.key + large / 4) - large / 4; },
        [](int64_t, int64_t key) { return key; });
  }
}

// The tensors that a function captures are found by an evaluation at places that no call has.
TEST_CASE("indices: a divisor may depend on lengths", "[score][indices]") {
  const auto table = captured(at::tensor(std::vector<float>{0.0f, 1.0f, 2.0f, 3.0f}));
  const auto score = score_mod([=](auto s, auto pair) { return s + table(pair.key / (pair.keys / 4)); });
  CHECK(score.function()->captured().size() == 1);
}
