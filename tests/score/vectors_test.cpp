// The functions that a score may call, for every instruction set that this CPU has, against those of the C
// library in double. They are called as the kernel calls them: through the code of a score function. Errors
// are in ulp of the exact result, rounded to float; `-s` prints the largest ones.

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include "score/evaluate.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN(),
                kLargest = std::numeric_limits<float>::max(), kNormal = std::numeric_limits<float>::min(),
                kTiny = std::numeric_limits<float>::denorm_min();

// The distance of neighbouring floats at a number.
double ulp_at(double x) {
  const double size = std::min(std::abs(x), double{kLargest});
  return std::ldexp(1.0, std::max(size == 0.0 ? -126 : std::ilogb(size), -126) - 23);
}

// The error of a result in units of `unit`, or in ulp without one. NaN and Inf must be where they belong,
// but 2^128, the first number that overflows, may stand for Inf.
double error_of(float got, double exact, double unit = 0.0) {
  if (std::isnan(exact) || std::isnan(got)) {
    return std::isnan(exact) == std::isnan(got) ? 0.0 : std::numeric_limits<double>::infinity();
  }
  if (got == 0.0f && std::abs(exact) < kNormal) return 0.0;  // such results may be flushed
  const auto bounded = [](double x) { return std::clamp(x, -0x1p128, 0x1p128); };
  return std::abs(bounded(got) - bounded(exact)) / (unit > 0.0 ? unit : ulp_at(exact));
}

const std::vector<float>& special_values() {
  static const std::vector<float> values = {
      0.0f,        -0.0f,   kTiny,  -kTiny,   3 * kTiny, kNormal, -kNormal, kLargest, -kLargest,
      kInf,        -kInf,   kNan,   1.0f,     -1.0f,     88.72f,  88.73f,   -87.33f,  -87.34f,
      -103.9f,     -104.0f, 1e4f,   1e8f,     -1e4f,     -1e8f,   0.5f,     1.5f,     8388608.0f,
      -8388607.5f, 0.15f,   -0.15f, 8191.99f, 8192.0f,   1e-20f,  2e9f};
  return values;
}

// Floats of every sign and exponent whose size is at most `most`.
std::vector<float> floats_up_to(double most) {
  auto values = special_values();
  for (uint64_t pattern = 0; pattern < uint64_t{1} << 32; pattern += 4099 * 4) {
    const auto number = static_cast<uint32_t>(pattern);
    float x;
    std::memcpy(&x, &number, sizeof(x));
    values.push_back(x);
  }
  std::erase_if(values, [&](float x) { return !(std::abs(x) <= most) && (most < kLargest); });
  return values;
}

// Evenly spaced numbers.
void add_grid(std::vector<float>& values, double from, double to, int count = 100000) {
  for (int i = 0; i <= count; ++i) values.push_back(static_cast<float>(from + (to - from) * i / count));
}

struct Worst {
  double error = 0.0;
  float input = 0.0f, got = 0.0f;
  void add(double e, float x, float y) {
    if (!(e <= error)) *this = {e, x, y};
  }
};

using Exact = std::function<double(double)>;

struct Case {
  const char* name;
  ScoreMod score;
  Exact exact, derivative;
  /// The largest errors of values and of derivatives; the units are ulp of these numbers where results are
  /// smaller.
  double ulp, slope_ulp, slope_least = 0.0, least = 0.0;
};

void check(const Case& test_case, const std::vector<float>& values) {
  std::vector<double> exact, derivative;
  for (const float x : values) {
    exact.push_back(test_case.exact(x));
    derivative.push_back(test_case.derivative(x));
  }
  for (const auto& [name, set] : vector_sets()) {
    const auto got = evaluate(test_case.score, set, values);
    Worst value, slope;
    for (size_t n = 0; n < values.size(); ++n) {
      const double unit = ulp_at(std::max(std::abs(exact[n]), test_case.least));
      value.add(error_of(got.along_keys[n], exact[n], unit), values[n], got.along_keys[n]);
      value.add(error_of(got.along_queries[n], exact[n], unit), values[n], got.along_queries[n]);
      if (std::isinf(values[n])) continue;
      slope.add(error_of(got.slopes[n], derivative[n],
                         ulp_at(std::max(std::abs(derivative[n]), test_case.slope_least))),
                values[n], got.slopes[n]);
    }
    INFO(test_case.name << ", " << name << ": " << value.error << " ulp at " << value.input << " ("
                        << value.got << "), derivative " << slope.error << " ulp at " << slope.input << " ("
                        << slope.got << ")");
    CHECK(value.error <= test_case.ulp);
    CHECK(slope.error <= test_case.slope_ulp);
  }
}

double sigmoid_exact(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double softplus_exact(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

}  // namespace

TEST_CASE("score functions: exponentials and logarithms against the C library", "[score][vectors]") {
  auto values = floats_up_to(kInf);
  add_grid(values, -110.0, 95.0);
  add_grid(values, -1.0, 1.0);
  check({"exp", score_mod([](auto s, auto) { return exp(s); }), [](double x) { return std::exp(x); },
         [](double x) { return std::exp(x); }, 2.0, 2.0},
        values);
  check({"sigmoid", score_mod([](auto s, auto) { return sigmoid(s); }), sigmoid_exact,
         [](double x) { return sigmoid_exact(x) * sigmoid_exact(-x); }, 3.0, 3.0, 1.0},
        values);
  check({"softplus", score_mod([](auto s, auto) { return softplus(s); }), softplus_exact, sigmoid_exact, 3.0,
         3.0},
        values);
  check({"tanh", score_mod([](auto s, auto) { return tanh(s); }), [](double x) { return std::tanh(x); },
         [](double x) { return 1.0 - std::tanh(x) * std::tanh(x); }, 8.0, 3.0, 1.0},
        values);
  add_grid(values, 0.5, 2.0);
  check({"log", score_mod([](auto s, auto) { return log(s); }), [](double x) { return std::log(x); },
         [](double x) { return 1.0 / x; }, 2.0, 1.0},
        values);
}

TEST_CASE("score functions: roots, floor and abs against the C library", "[score][vectors]") {
  auto values = floats_up_to(kInf);
  add_grid(values, -100.0, 100.0);
  check({"sqrt", score_mod([](auto s, auto) { return sqrt(s); }), [](double x) { return std::sqrt(x); },
         [](double x) { return 0.5 / std::sqrt(x); }, 0.5, 1.5},
        values);
  check(
      {"rsqrt", score_mod([](auto s, auto) { return rsqrt(s); }), [](double x) { return 1.0 / std::sqrt(x); },
       [](double x) { return -0.5 * std::pow(1.0 / std::sqrt(x), 3.0); }, 1.5, 6.0},
      values);
  check({"floor", score_mod([](auto s, auto) { return floor(s); }), [](double x) { return std::floor(x); },
         [](double) { return 0.0; }, 0.0, 0.0},
        values);
  check({"abs", score_mod([](auto s, auto) { return abs(s); }), [](double x) { return std::abs(x); },
         [](double x) { return x > 0.0   ? 1.0
                               : x < 0.0 ? -1.0
                                         : 0.0; }, 0.0, 0.0},
        values);
}

TEST_CASE("score functions: sin and cos against the C library", "[score][vectors]") {
  const auto sine = [](double ulp, double least) {
    return Case{"sin",
                score_mod([](auto s, auto) { return sin(s); }),
                [](double x) { return std::sin(x); },
                [](double x) { return std::cos(x); },
                ulp,
                ulp,
                least,
                least};
  };
  const auto cosine = [](double ulp, double least) {
    return Case{"cos",
                score_mod([](auto s, auto) { return cos(s); }),
                [](double x) { return std::cos(x); },
                [](double x) { return -std::sin(x); },
                ulp,
                ulp,
                least,
                least};
  };
  auto values = floats_up_to(100.0);
  add_grid(values, -100.0, 100.0);
  check(sine(2.0, 0.0), values);
  check(cosine(2.0, 0.0), values);
  values = {1e4f, -1e4f, 1e8f, -1e8f, kLargest, kInf, kNan};
  add_grid(values, 8192.0, 1e6);
  check(sine(1.0, 0.0), values);
  check(cosine(1.0, 0.0), values);
  // Near multiples of pi, the rest of a large argument has an absolute error of 1e-11.
  values.clear();
  add_grid(values, -8192.0, 8192.0);
  check(sine(2.0, 1e-3), values);
  check(cosine(2.0, 1e-3), values);
}

namespace {

using ExactOfTwo = std::function<double(double, double)>;

struct CaseOfTwo {
  const char* name;
  std::function<ScoreMod(const Captured&)> score;
  ExactOfTwo exact, by_first, by_second;
  double ulp, slope_ulp;
};

// The second operands are the numbers of a captured tensor.
void check(const CaseOfTwo& test_case, const std::vector<float>& first, const std::vector<float>& second) {
  const auto numbers = at::tensor(second);
  const auto score = test_case.score(captured(numbers));
  for (const auto& [name, set] : vector_sets()) {
    const auto got = evaluate(score, set, first, numbers);
    Worst value, slope;
    const auto add = [](Worst& worst, float y, double exact, float x) {
      worst.add(error_of(y, exact), x, y);
    };
    for (size_t n = 0; n < first.size(); ++n) {
      const double x = first[n], y = second[n];
      add(value, got.along_keys[n], test_case.exact(x, y), first[n]);
      add(value, got.along_queries[n], test_case.exact(x, y), first[n]);
      add(slope, got.slopes[n], test_case.by_first(x, y), first[n]);
      add(slope, got.captured[n], test_case.by_second(x, y), first[n]);
    }
    INFO(test_case.name << ", " << name << ": " << value.error << " ulp at " << value.input << " ("
                        << value.got << "), derivatives " << slope.error << " ulp at " << slope.input << " ("
                        << slope.got << ")");
    CHECK(value.error <= test_case.ulp);
    CHECK(slope.error <= test_case.slope_ulp);
  }
}

// Every pair of some numbers.
std::pair<std::vector<float>, std::vector<float>> pairs_of(const std::vector<float>& a,
                                                           const std::vector<float>& b) {
  std::pair<std::vector<float>, std::vector<float>> pairs;
  for (const float x : a) {
    for (const float y : b) {
      pairs.first.push_back(x);
      pairs.second.push_back(y);
    }
  }
  return pairs;
}

const auto kPow = [](const Captured& second) {
  return score_mod([=](auto s, auto pair) { return pow(s, second(pair.query + pair.key)); });
};

}  // namespace

TEST_CASE("score functions: pow against the C library", "[score][vectors]") {
  const auto by_first = [](double x, double y) { return y == 0.0 ? 0.0 : y * std::pow(x, y - 1.0); };
  const auto by_second = [](double x, double y) {
    return x == 0.0 && y >= 0.0 ? 0.0 : std::pow(x, y) * std::log(x);
  };
  std::vector<float> bases, exponents;
  add_grid(bases, 0.01, 30.0, 400);
  add_grid(exponents, -5.0, 5.0, 400);
  const auto [first, second] = pairs_of(bases, exponents);
  check(CaseOfTwo{"pow", kPow, [](double x, double y) { return std::pow(x, y); }, by_first, by_second, 3.0,
                  6.0},
        first, second);
  const auto [negative, whole] =
      pairs_of({-3.0f, -2.5f, -1.0f, -0.5f}, {-3.0f, -2.0f, 1.0f, 2.0f, 3.0f, 4.0f});
  check(CaseOfTwo{"pow of negative numbers", kPow, [](double x, double y) { return std::pow(x, y); },
                  by_first, by_second, 3.0, 6.0},
        negative, whole);
}

TEST_CASE("score functions: pow of special values", "[score][vectors]") {
  const std::vector<float> values = {0.0f,  1.0f,  -1.0f,  0.5f, -0.5f, 2.0f, -2.0f,    3.0f,
                                     -3.0f, 1e30f, -1e30f, kInf, -kInf, kNan, kLargest, kNormal};
  const auto [first, second] = pairs_of(values, values);
  for (const auto& [name, set] : vector_sets()) {
    const auto numbers = at::tensor(second);
    const auto got = evaluate(kPow(captured(numbers)), set, first);
    for (size_t n = 0; n < first.size(); ++n) {
      const double exact = std::pow(double{first[n]}, double{second[n]});
      INFO(name << ": pow(" << first[n] << ", " << second[n] << ") = " << got.along_keys[n] << ", exactly "
                << exact);
      CHECK(error_of(got.along_keys[n], exact) <= 3.0);
    }
  }
}

TEST_CASE("score functions: min, max, where and comparisons", "[score][vectors]") {
  const auto [first, second] = pairs_of(special_values(), special_values());
  const auto numbers = at::tensor(second);
  const auto other = captured(numbers);
  const auto nan_or = [](double x, double y, double result) {
    return std::isnan(x) || std::isnan(y) ? kNan : result;
  };
  struct Rule {
    const char* name;
    ScoreMod score;
    ExactOfTwo exact, by_first, by_second;
  };
  const auto half = [](double x, double y, bool mine) { return x == y ? 0.5 : mine ? 1.0 : 0.0; };
  const auto flag = [](bool on) { return on ? 1.0 : 0.0; };
  const auto none = [](double, double) { return 0.0; };
#define COMPARISON(op)                                                                                       \
  Rule {                                                                                                     \
#op, score_mod([=](auto s, auto pair) { return where(s op other(pair.query + pair.key), 1.0f, 0.0f); }), \
        [=](double x, double y) { return flag(x op y); }, none, none                                         \
  }
  const std::vector<Rule> rules = {
      {"max", score_mod([=](auto s, auto pair) { return max(s, other(pair.query + pair.key)); }),
       [=](double x, double y) { return nan_or(x, y, std::max(x, y)); },
       [=](double x, double y) { return half(x, y, x > y); },
       [=](double x, double y) { return half(x, y, y > x); }},
      {"min", score_mod([=](auto s, auto pair) { return min(s, other(pair.query + pair.key)); }),
       [=](double x, double y) { return nan_or(x, y, std::min(x, y)); },
       [=](double x, double y) { return half(x, y, x < y); },
       [=](double x, double y) { return half(x, y, y < x); }},
      {"where",
       score_mod([=](auto s, auto pair) { return where(s < 0.25f, s, other(pair.query + pair.key)); }),
       [](double x, double y) { return x < 0.25 ? x : y; }, [=](double x, double) { return flag(x < 0.25); },
       [=](double x, double) { return flag(!(x < 0.25)); }},
      COMPARISON(<),
      COMPARISON(<=),
      COMPARISON(>),
      COMPARISON(>=),
      COMPARISON(==),
      COMPARISON(!=),
      {"and, or, exclusive or, not", score_mod([=](auto s, auto pair) {
         const auto y = other(pair.query + pair.key);
         return where((s < y) & !(s > 1.0f), 1, 0) + where((s < 0) | (y < 0), 2, 0) +
                where((s < 0) ^ (y < 0), 4, 0);
       }),
       [=](double x, double y) {
         return flag(x < y && !(x > 1.0)) + 2 * flag(x < 0 || y < 0) + 4 * flag((x < 0) != (y < 0));
       },
       none, none},
  };
#undef COMPARISON
  for (const auto& rule : rules) {
    for (const auto& [name, set] : vector_sets()) {
      const auto got = evaluate(rule.score, set, first, numbers);
      for (size_t n = 0; n < first.size(); ++n) {
        const double x = first[n], y = second[n];
        INFO(rule.name << ", " << name << ": of " << x << " and " << y);
        REQUIRE(error_of(got.along_keys[n], rule.exact(x, y)) == 0.0);
        REQUIRE(error_of(got.along_queries[n], rule.exact(x, y)) == 0.0);
        if (std::isnan(x) || std::isnan(y)) continue;
        REQUIRE(got.slopes[n] == rule.by_first(x, y));
        REQUIRE(got.captured[n] == rule.by_second(x, y));
      }
    }
  }
}

TEST_CASE("score functions: sums, products and quotients have the derivatives of both operands",
          "[score][vectors]") {
  std::vector<float> values;
  add_grid(values, -3.05, 3.0, 60);
  const auto [first, second] = pairs_of(values, values);
  const std::vector<CaseOfTwo> cases = {
      {"s * s / (c * c + 1) + 2 * s * c - (3 - c) / 4",
       [](const Captured& c) {
         return score_mod([=](auto s, auto pair) {
           const auto y = c(pair.query + pair.key);
           return s * s / (y * y + 1) + 2 * s * y - (3 - y) / 4;
         });
       },
       [](double x, double y) { return x * x / (y * y + 1) + 2 * x * y - (3 - y) / 4; },
       [](double x, double y) { return 2 * x / (y * y + 1) + 2 * y; },
       [](double x, double y) { return -2 * x * x * y / ((y * y + 1) * (y * y + 1)) + 2 * x + 0.25; }, 0.0,
       0.0},
  };
  for (const auto& test_case : cases) {
    const auto numbers = at::tensor(second);
    const auto score = test_case.score(captured(numbers));
    for (const auto& [name, set] : vector_sets()) {
      const auto got = evaluate(score, set, first, numbers);
      for (size_t n = 0; n < first.size(); ++n) {
        const double x = first[n], y = second[n];
        INFO(test_case.name << ", " << name << ": s = " << x << ", c = " << y);
        REQUIRE(error_of(got.along_keys[n], test_case.exact(x, y), 0x1p-18) <= 1.0);
        REQUIRE(error_of(got.slopes[n], test_case.by_first(x, y), 0x1p-18) <= 1.0);
        REQUIRE(error_of(got.captured[n], test_case.by_second(x, y), 0x1p-18) <= 1.0);
      }
    }
  }
}

TEST_CASE("score functions: an infinite derivative by the score leaves that of a captured number alone",
          "[score][vectors]") {
  const std::vector<float> values = {0.0f, -0.0f, 1.0f, 0.0f, 4.0f};
  const auto numbers = at::tensor(std::vector<float>{1.0f, 2.0f, 3.0f, 4.0f, 5.0f});
  const auto c = captured(numbers);
  const auto score = score_mod([=](auto s, auto pair) {
    return sqrt(s) + log(s) + rsqrt(s) + 1.0f / s + s / (s * s) + pow(s, 0.5f) +
           2.0f * c(pair.query + pair.key);
  });
  const auto powers = score_mod([=](auto s, auto pair) { return pow(s - 2, c(pair.query + pair.key)); });
  for (const auto& [name, set] : vector_sets()) {
    INFO(name);
    CHECK(evaluate(score, set, values, numbers).captured == std::vector<float>(5, 2.0f));
    // Whole powers of negative numbers have a derivative by the base, and none by the exponent.
    const auto got = evaluate(powers, set, {0.0f, 0.0f, 0.0f, 0.0f, 0.0f}, numbers);
    CHECK(got.slopes == std::vector<float>{1.0f, -4.0f, 12.0f, -32.0f, 80.0f});
  }
}
