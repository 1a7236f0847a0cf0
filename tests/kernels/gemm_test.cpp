// Compares products of small matrices with sums of doubles, by the code selected for this CPU (ctest runs it
// once per instruction set).

#include "kernels/gemm/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <c10/util/BFloat16.h>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

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
  static constexpr int64_t pair = 1;
  static bool available() { return true; }
  static float element(float x) { return x; }
};

struct Halves {
  using Operand = bf16_t;
  static constexpr int64_t pair = 2;
  static bool available() { return has_gemm_bf16(); }
  static bf16_t element(float x) { return c10::BFloat16(x).x; }
};

}  // namespace

TEMPLATE_TEST_CASE("small products: every size, and not a number beyond it", "[gemm]", Floats, Halves) {
  using Operand = typename TestType::Operand;
  if (!TestType::available()) SKIP("bfloat16 is multiplied as float32 on this CPU");
  const int64_t m = GENERATE(1, 2, 5, 6, 7, 8, 11, 16, 17, 31, 32, 33, 50, 64);
  const int64_t n = GENERATE(1, 3, 15, 16, 17, 32, 40, 63, 64, 65, 96, 130);
  const int64_t k = GENERATE(2, 6, 16, 32, 34, 64, 126, 128, 130, 300);
  const int64_t lda = k + 6, ldb = n + 3, ldc = n + 5;

  // The gaps between rows hold NaN, which no sum may include.
  std::vector<Operand> a(static_cast<size_t>(m * lda), TestType::element(kNan));
  std::vector<Operand> b(static_cast<size_t>(k * ldb), TestType::element(kNan));
  std::vector<float> c(static_cast<size_t>(m * ldc), -7.0F);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = 0; p < k; ++p)
      a[static_cast<size_t>(i * lda + p)] = TestType::element(number(i * 131 + p));
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
    std::fill(c.begin(), c.end(), -7.0F);
    gemm(Matrix<const Operand>{a.data(), m, k, lda}, Rhs<const Operand>{b.data(), k, n, ldb},
         Matrix<float>{c.data(), m, n, ldc}, accumulate ? Sums::Continue : Sums::Begin);
    gemm_done();

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

TEST_CASE("causal products: what is wanted is right, and what is out of reach is not met", "[gemm][short]") {
  const int64_t m = GENERATE(1, 5, 24, 32), columns = GENERATE(-3, 0, 1, 20, 64),
                inner = GENERATE(-3, 1, 40, 130);
  const int64_t n = 64, k = 200;
  // Parts of the rhs that no row reaches are NaN, and each row of the lhs is zero from its end on.
  std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n)),
      c(static_cast<size_t>(m * n), -7.0F);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = 0; p < std::min(k, inner + i); ++p)
      a[static_cast<size_t>(i * k + p)] = number(i * 131 + p);
  }
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t j = 0; j < n; ++j)
      b[static_cast<size_t>(p * n + j)] = p < inner + m - 1 ? number(p * 17 + j * 5 + 3) : kNan;
  }

  gemm(Matrix<const float>{a.data(), m, k, k}, Rhs<const float>{b.data(), k, n, n},
       Matrix<float>{c.data(), m, n, n}, Sums::Continue, {.columns = columns, .inner = inner});

  int64_t wrong = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < std::min(n, columns + i); ++j) {
      double want = -7.0;
      for (int64_t p = 0; p < std::min(k, inner + i); ++p)
        want += double{number(i * 131 + p)} * number(p * 17 + j * 5 + 3);
      wrong += !(c[static_cast<size_t>(i * n + j)] == static_cast<float>(want));
    }
  }
  INFO(m << " rows, columns from " << columns << ", inner numbers from " << inner);
  CHECK(wrong == 0);
  if (columns <= -m) CHECK(c == std::vector<float>(c.size(), -7.0F));
}

TEST_CASE("products under a window: what is wanted is right, and what is before its begin is not met",
          "[gemm][short]") {
  const int64_t m = GENERATE(1, 5, 24, 32), first_column = GENERATE(-40, -3, 0, 1, 20, 40, 64),
                first_inner = GENERATE(-40, -3, 1, 40, 130);
  const int64_t n = 64, k = 200;
  // Rows of the rhs that no row reaches are NaN, and the lhs is zero before each row's begin.
  std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n)),
      c(static_cast<size_t>(m * n), -7.0F);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = std::max<int64_t>(first_inner + i, 0); p < k; ++p)
      a[static_cast<size_t>(i * k + p)] = number(i * 131 + p);
  }
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t j = 0; j < n; ++j)
      b[static_cast<size_t>(p * n + j)] = p >= first_inner ? number(p * 17 + j * 5 + 3) : kNan;
  }

  gemm(Matrix<const float>{a.data(), m, k, k}, Rhs<const float>{b.data(), k, n, n},
       Matrix<float>{c.data(), m, n, n}, Sums::Continue,
       {.first_column = first_column, .first_inner = first_inner});

  int64_t wrong = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = std::max<int64_t>(first_column + i, 0); j < n; ++j) {
      double want = -7.0;
      for (int64_t p = std::max<int64_t>(first_inner + i, 0); p < k; ++p)
        want += double{number(i * 131 + p)} * number(p * 17 + j * 5 + 3);
      wrong += !(c[static_cast<size_t>(i * n + j)] == static_cast<float>(want));
    }
  }
  INFO(m << " rows, columns from " << first_column << ", inner numbers from " << first_inner);
  CHECK(wrong == 0);
  if (first_column >= n) CHECK(c == std::vector<float>(c.size(), -7.0F));
}

TEST_CASE("products with a triangle on the right: what is below it is not met", "[gemm][short]") {
  const int64_t m = GENERATE(1, 5, 32), reach = GENERATE(-80, -3, 1, 40, 130);
  const int64_t n = 60, k = 200;
  // Numbers of the lhs that no column reaches are NaN, and the rhs is zero below each column's end.
  std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n)),
      c(static_cast<size_t>(m * n), -7.0F);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = 0; p < k; ++p)
      a[static_cast<size_t>(i * k + p)] = p < reach + n - 1 ? number(i * 131 + p) : kNan;
  }
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t p = 0; p < std::min(k, reach + j); ++p)
      b[static_cast<size_t>(p * n + j)] = number(p * 17 + j * 5 + 3);
  }

  gemm(Matrix<const float>{a.data(), m, k, k}, Rhs<const float>{b.data(), k, n, n},
       Matrix<float>{c.data(), m, n, n}, Sums::Continue, {.inner_of_column = reach});

  int64_t wrong = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double want = -7.0;
      for (int64_t p = 0; p < std::min(k, reach + j); ++p)
        want += double{number(i * 131 + p)} * number(p * 17 + j * 5 + 3);
      wrong += !(c[static_cast<size_t>(i * n + j)] == static_cast<float>(want));
    }
  }
  INFO(m << " rows, column 0 ends at " << reach);
  CHECK(wrong == 0);
}
