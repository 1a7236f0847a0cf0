// Compares products of small matrices with sums of doubles, by the code selected for this CPU (ctest runs it
// once per instruction set).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/util/BFloat16.h>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "kernels/gemm/products.h"
#include "kernels/simd/elementwise.h"
#include "kernels/simd/selection.h"

using namespace attentive::kernels::cpu;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Returns eighths of small integers, which are exact in bfloat16.
float number(int64_t seed) {
  return static_cast<float>((seed * 7919 + 31) % 33 - 16) / 8.0F;
}

// The products of the numbers (i * 131 + p) and (p * 17 + j * 5 + 3), summed over p; exact in any order.
std::vector<double> exact_products(int64_t m, int64_t n, int64_t k) {
  std::vector<double> left(static_cast<size_t>(m * k)), right(static_cast<size_t>(k * n)),
      sums(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = 0; p < k; ++p) left[static_cast<size_t>(i * k + p)] = number(i * 131 + p);
  }
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t j = 0; j < n; ++j) right[static_cast<size_t>(p * n + j)] = number(p * 17 + j * 5 + 3);
  }
  for (int64_t i = 0; i < m; ++i) {
    double* const row = sums.data() + i * n;
    for (int64_t p = 0; p < k; ++p) {
      const double factor = left[static_cast<size_t>(i * k + p)];
      const double* const other = right.data() + p * n;
      for (int64_t j = 0; j < n; ++j) row[j] += factor * other[j];
    }
  }
  return sums;
}

struct Floats {
  using Operand = float;
  static constexpr bool transposed = false;  // whether the lhs is stored as (K, M)
  static constexpr int64_t pair = 1;
  static bool available() { return true; }
  static float element(float x) { return x; }
};

struct TransposedFloats : Floats {
  static constexpr bool transposed = true;
};

struct Halves {
  using Operand = bf16_t;
  static constexpr bool transposed = false;
  static constexpr int64_t pair = 2;
  static bool available() { return has_gemm_bf16(); }
  static bf16_t element(float x) { return c10::BFloat16(x).x; }
};

// An lhs of m rows and k numbers each, with `gap` numbers behind each row of its memory.
template <class Numbers>
struct Left {
  Left(int64_t m, int64_t k, int64_t gap, float fill)
      : rows(m),
        inner(k),
        stride((Numbers::transposed ? m : k) + gap),
        numbers(static_cast<size_t>((Numbers::transposed ? k : m) * stride), Numbers::element(fill)) {}

  void set(int64_t i, int64_t p, float x) {
    numbers[static_cast<size_t>(Numbers::transposed ? p * stride + i : i * stride + p)] = Numbers::element(x);
  }
  // A product with a transposed lhs is always added.
  void multiply(const Rhs<const typename Numbers::Operand>& rhs, const Matrix<float>& out, Sums sums,
                const BandBounds& reach = {}) const {
    if constexpr (Numbers::transposed) {
      products().add_transposed({numbers.data(), inner, rows, stride}, rhs, out, reach);
    } else {
      gemm({numbers.data(), rows, inner, stride}, rhs, out, sums, reach);
      gemm_done();
    }
  }

  int64_t rows, inner, stride;
  std::vector<typename Numbers::Operand> numbers;
};

}  // namespace

TEMPLATE_TEST_CASE("small products: every size, and not a number beyond it", "[gemm]", Floats,
                   TransposedFloats, Halves) {
  using Operand = typename TestType::Operand;
  if (!TestType::available()) SKIP("bfloat16 is multiplied as float32 on this CPU");
  const int64_t m = GENERATE(1, 2, 5, 6, 7, 8, 11, 16, 17, 31, 32, 33, 50, 64);
  const int64_t n = GENERATE(1, 3, 15, 16, 17, 32, 40, 63, 64, 65, 96, 130);
  const int64_t k = GENERATE(2, 6, 16, 32, 34, 64, 126, 128, 130, 300);
  const int64_t ldb = n + 3, ldc = n + 5;

  // The gaps between rows hold NaN, which no sum may include.
  Left<TestType> a(m, k, 6, kNan);
  std::vector<Operand> b(static_cast<size_t>(k * ldb), TestType::element(kNan));
  std::vector<float> c(static_cast<size_t>(m * ldc), -7.0F);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = 0; p < k; ++p) a.set(i, p, number(i * 131 + p));
  }
  const auto at_right = [&](int64_t p, int64_t j) {
    return static_cast<size_t>(p / TestType::pair * TestType::pair * ldb + j * TestType::pair +
                               p % TestType::pair);
  };
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t j = 0; j < n; ++j) b[at_right(p, j)] = TestType::element(number(p * 17 + j * 5 + 3));
  }

  const auto products = exact_products(m, n, k);
  for (const bool accumulate : {false, true}) {
    if (TestType::transposed && !accumulate) continue;
    std::fill(c.begin(), c.end(), -7.0F);
    a.multiply({b.data(), k, n, ldb}, {c.data(), m, n, ldc}, accumulate ? Sums::Continue : Sums::Begin);

    int64_t wrong = 0;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < ldc; ++j) {
        double want = -7.0;
        if (j < n) want = products[static_cast<size_t>(i * n + j)] + (accumulate ? -7.0 : 0.0);
        // Sums of 64ths below 2^17 are exact.
        wrong += !(c[static_cast<size_t>(i * ldc + j)] == static_cast<float>(want));
      }
    }
    INFO(m << " x " << n << " x " << k << (accumulate ? ", added" : ""));
    CHECK(wrong == 0);
  }
}

// Products with a reach. What they need not read is NaN, except in a group of inner numbers that is
// multiplied at once and of which they need another.
template <class Numbers>
class Reached {
  using Operand = typename Numbers::Operand;
  static constexpr int64_t kGroup = Numbers::pair == 1 ? 1 : 4, kBehind = 128;

 public:
  // `left` and `right` say which inner numbers of a row and of a column are not zero, as [begin, end).
  struct Range {
    int64_t begin, end;
    bool has(int64_t p) const { return p >= begin && p < end; }
    bool touches_group_of(int64_t p) const {
      const int64_t first = p / kGroup * kGroup;
      return begin < first + kGroup && end > first;
    }
  };

  Reached(int64_t rows, int64_t columns, int64_t inner)
      : m(rows), n(columns), k(inner), a(rows, inner, 0, 0.0F) {
    b.resize(static_cast<size_t>(k * n));
    c.assign(static_cast<size_t>(m * n + kBehind), -7.0F);
  }

  // Zeros are outside a row's or column's own range, NaN outside what all of the other side need.
  template <class OfRow, class OfColumn>
  void fill(const OfRow& of_row, const OfColumn& of_column, Range rows_need, Range columns_need) {
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t i = 0; i < m; ++i) {
        const float x = of_row(i).has(p) ? number(i * 131 + p) : 0.0F;
        a.set(i, p, columns_need.touches_group_of(p) ? x : kNan);
      }
      for (int64_t j = 0; j < n; ++j) {
        const float x = of_column(j).has(p) ? number(p * 17 + j * 5 + 3) : 0.0F;
        const int64_t offset = p / Numbers::pair * Numbers::pair * n + j * Numbers::pair + p % Numbers::pair;
        b[static_cast<size_t>(offset)] = Numbers::element(rows_need.touches_group_of(p) ? x : kNan);
      }
    }
  }

  void add(const BandBounds& reach) {
    a.multiply({b.data(), k, n, n}, {c.data(), m, n, n}, Sums::Continue, reach);
  }

  // How many of the wanted columns of each row are wrong, and how many numbers behind the result were
  // written.
  template <class OfRow, class OfColumn, class Wanted>
  int64_t wrong(const OfRow& of_row, const OfColumn& of_column, const Wanted& wanted) const {
    int64_t count = kBehind - std::count(c.end() - kBehind, c.end(), -7.0F);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        if (!wanted(i, j)) continue;
        double want = -7.0;
        for (int64_t p = 0; p < k; ++p) {
          if (of_row(i).has(p) && of_column(j).has(p))
            want += double{number(i * 131 + p)} * number(p * 17 + j * 5 + 3);
        }
        count += !(c[static_cast<size_t>(i * n + j)] == static_cast<float>(want));
      }
    }
    return count;
  }
  bool untouched() const { return c == std::vector<float>(c.size(), -7.0F); }

  static bool available() { return std::is_same_v<Operand, float> || selection().bf16 == Bf16Product::Pairs; }

 private:
  int64_t m, n, k;
  Left<Numbers> a;
  std::vector<Operand> b;
  std::vector<float> c;
};

constexpr const char* kNoReach =
    "bfloat16 is multiplied as float32 on this CPU, or by the matrix unit in whole";

TEMPLATE_TEST_CASE("causal products: what is wanted is right, and what is out of reach is not met",
                   "[gemm][short]", Floats, TransposedFloats, Halves) {
  if (!Reached<TestType>::available()) SKIP(kNoReach);
  using Range = typename Reached<TestType>::Range;
  const int64_t m = GENERATE(1, 5, 24, 32), columns = GENERATE(-3, 0, 1, 20, 64),
                inner = GENERATE(-3, 1, 40, 130);
  const int64_t n = 64, k = 200;
  const auto of_row = [&](int64_t i) { return Range{0, inner + i}; };
  const auto of_column = [&](int64_t) { return Range{0, k}; };
  Reached<TestType> product(m, n, k);
  product.fill(of_row, of_column, {0, inner + m - 1}, {0, k});
  product.add({.columns = columns, .inner = inner});
  INFO(m << " rows, columns from " << columns << ", inner numbers from " << inner);
  CHECK(product.wrong(of_row, of_column, [&](int64_t i, int64_t j) { return j < columns + i; }) == 0);
  if (columns <= -m) CHECK(product.untouched());
}

TEMPLATE_TEST_CASE(
    "products under a window: what is wanted is right, and what is before its begin is not met",
    "[gemm][short]", Floats, TransposedFloats, Halves) {
  if (!Reached<TestType>::available()) SKIP(kNoReach);
  using Range = typename Reached<TestType>::Range;
  const int64_t m = GENERATE(1, 5, 24, 32), first_column = GENERATE(-40, -3, 0, 1, 20, 40, 64),
                first_inner = GENERATE(-40, -3, 1, 40, 130);
  const int64_t n = 64, k = 200;
  const auto of_row = [&](int64_t i) { return Range{first_inner + i, k}; };
  const auto of_column = [&](int64_t) { return Range{0, k}; };
  Reached<TestType> product(m, n, k);
  product.fill(of_row, of_column, {first_inner, k}, {0, k});
  product.add({.first_column = first_column, .first_inner = first_inner});
  INFO(m << " rows, columns from " << first_column << ", inner numbers from " << first_inner);
  CHECK(product.wrong(of_row, of_column, [&](int64_t i, int64_t j) { return j >= first_column + i; }) == 0);
  if (first_column >= n) CHECK(product.untouched());
}

TEMPLATE_TEST_CASE("products of a window whose rows begin after they end, for some or all rows",
                   "[gemm][short]", Floats, TransposedFloats, Halves) {
  if (!Reached<TestType>::available()) SKIP(kNoReach);
  using Range = typename Reached<TestType>::Range;
  const int64_t m = GENERATE(1, 6, 24), first_column = GENERATE(-20, 0, 17, 50),
                columns = first_column - GENERATE(-30, -1, 0, 1, 31, 60);
  const int64_t n = 64, k = 20;
  const auto whole = [&](int64_t) { return Range{0, k}; };
  Reached<TestType> product(m, n, k);
  product.fill(whole, whole, {0, k}, {0, k});
  product.add({.columns = columns, .first_column = first_column});
  INFO(m << " rows, columns from " << first_column << " to " << columns);
  CHECK(product.wrong(whole, whole,
                      [&](int64_t i, int64_t j) { return j >= first_column + i && j < columns + i; }) == 0);
}

TEMPLATE_TEST_CASE("products with a triangle on the right: what is below it is not met", "[gemm][short]",
                   Floats, TransposedFloats, Halves) {
  if (!Reached<TestType>::available()) SKIP(kNoReach);
  using Range = typename Reached<TestType>::Range;
  const int64_t m = GENERATE(1, 5, 32), reach = GENERATE(-80, -3, 1, 40, 130);
  const int64_t n = 60, k = 200;
  const auto of_row = [&](int64_t) { return Range{0, k}; };
  const auto of_column = [&](int64_t j) { return Range{0, reach + j}; };
  Reached<TestType> product(m, n, k);
  product.fill(of_row, of_column, {0, k}, {0, reach + n - 1});
  product.add({.inner_of_column = reach});
  INFO(m << " rows, column 0 ends at " << reach);
  CHECK(product.wrong(of_row, of_column, [](int64_t, int64_t) { return true; }) == 0);
}

TEMPLATE_TEST_CASE("a transposed matrix holds the converted numbers, and nothing beside it is written",
                   "[gemm][transpose]", (std::pair<float, float>), (std::pair<bf16_t, bf16_t>),
                   (std::pair<bf16_t, float>), (std::pair<f16_t, float>), (std::pair<float, bf16_t>),
                   (std::pair<float, f16_t>)) {
  using From = typename TestType::first_type;
  using To = typename TestType::second_type;
  const auto bytes_equal = [](const To& a, const To& b) { return std::memcmp(&a, &b, sizeof(To)) == 0; };
  for (const auto& [rows, cols] : std::initializer_list<std::pair<int64_t, int64_t>>{
           {1, 1}, {16, 16}, {17, 40}, {48, 33}, {5, 64}, {130, 7}}) {
    const int64_t stride = cols + 3, out_stride = rows + 5;
    std::vector<From> from(static_cast<size_t>(rows * stride));
    for (size_t n = 0; n < from.size(); ++n) {
      // Numbers of several magnitudes, most of which a half type rounds; one is NaN.
      const float x =
          n == 7 ? kNan : number(static_cast<int64_t>(n)) * (1.0F + 1e-3F * static_cast<float>(n % 97));
      if constexpr (std::is_same_v<From, float>) {
        from[n] = x;
      } else {
        elementwise().convert(&x, &from[n], 1);
      }
    }
    std::vector<To> to(static_cast<size_t>(cols * out_stride)), untouched(to.size());
    std::memset(static_cast<void*>(to.data()), 0x5a, to.size() * sizeof(To));
    std::memcpy(static_cast<void*>(untouched.data()), to.data(), to.size() * sizeof(To));
    products().transpose(Matrix<const From>{from.data(), rows, cols, stride},
                         Matrix<To>{to.data(), cols, rows, out_stride});
    int64_t wrong = 0;
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t r = 0; r < out_stride; ++r) {
        const auto offset = static_cast<size_t>(c * out_stride + r);
        To expected = untouched[offset];
        if (r < rows) {
          const From& number = from[static_cast<size_t>(r * stride + c)];
          if constexpr (std::is_same_v<From, To>) {
            expected = number;
          } else {
            elementwise().convert(&number, &expected, 1);
          }
        }
        wrong += bytes_equal(to[offset], expected) ? 0 : 1;
      }
    }
    INFO(rows << " x " << cols);
    CHECK(wrong == 0);
  }
}
