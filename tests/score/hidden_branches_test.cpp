// Branches of scores that `where` does not take: their gradients are exactly 0, whatever their derivatives;
// those that it takes have the derivatives of PyTorch, NaN and Inf included. For every function that a score
// may call, alone and in pairs, by the definition and by the kernel on every instruction set of this CPU.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/log.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>
#include <attentive/score/score_mod.h>

#include "score/instruction_sets.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;
using torch::autograd::grad;

namespace {

constexpr float kHuge = std::numeric_limits<float>::infinity();
constexpr std::array kBothBackends = {Backend::Reference, Backend::Native};

// A number per pair by PyTorch's own functions.
struct Stock {
  at::Tensor x;
  Stock(at::Tensor numbers) : x(std::move(numbers)) {}                 // NOLINT(google-explicit-constructor)
  Stock(double number) : x(at::scalar_tensor(number, at::kDouble)) {}  // NOLINT(google-explicit-constructor)
};
#define STOCK_OPERATOR(OP)                            \
  Stock operator OP(const Stock& a, const Stock& b) { \
    return a.x OP b.x;                                \
  }
STOCK_OPERATOR(+)
STOCK_OPERATOR(-)
STOCK_OPERATOR(*)
STOCK_OPERATOR(/)
#undef STOCK_OPERATOR
Stock operator-(const Stock& a) {
  return -a.x;
}
#define STOCK_FUNCTION(function)   \
  Stock function(const Stock& a) { \
    return at::function(a.x);      \
  }
ATTENTIVE_SCORE_FUNCTIONS(STOCK_FUNCTION)
STOCK_FUNCTION(abs)
STOCK_FUNCTION(floor)
#undef STOCK_FUNCTION
Stock pow(const Stock& a, const Stock& b) {
  return at::pow(a.x, b.x);
}
Stock min(const Stock& a, const Stock& b) {
  return at::minimum(a.x, b.x);
}
Stock max(const Stock& a, const Stock& b) {
  return at::maximum(a.x, b.x);
}

// Every function of one number that a score may call, by its number.
constexpr std::array kOfOne = {"x",         "exp",        "log",       "tanh",  "sqrt",  "rsqrt",
                               "abs",       "sigmoid",    "softplus",  "sin",   "cos",   "floor",
                               "-x",        "1 / x",      "x / 4",     "x * x", "0 * x", "pow(x, .5)",
                               "pow(x, 0)", "pow(x, -1)", "pow(2, x)", "max",   "min"};
template <class T>
T of_one(size_t number, const T& x) {
  if (number == 1) return exp(x);
  if (number == 2) return log(x);
  if (number == 3) return tanh(x);
  if (number == 4) return sqrt(x);
  if (number == 5) return rsqrt(x);
  if (number == 6) return abs(x);
  if (number == 7) return sigmoid(x);
  if (number == 8) return softplus(x);
  if (number == 9) return sin(x);
  if (number == 10) return cos(x);
  if (number == 11) return floor(x);
  if (number == 12) return -x;
  if (number == 13) return 1.0f / x;
  if (number == 14) return x / 4.0f;
  if (number == 15) return x * x;
  if (number == 16) return 0.0f * x;
  if (number == 17) return pow(x, 0.5f);
  if (number == 18) return pow(x, 0.0f);
  if (number == 19) return pow(x, -1.0f);
  if (number == 20) return pow(2.0f, x);
  if (number == 21) return max(x, 0.3f);
  if (number == 22) return min(x, 0.3f);
  return x;
}

// Every function of two.
constexpr std::array kOfTwo = {"x",     "x + y",     "x - y",     "x * y",
                               "x / y", "pow(x, y)", "min(x, y)", "max(x, y)"};
template <class T>
T of_two(size_t number, const T& x, const T& y) {
  if (number == 1) return x + y;
  if (number == 2) return x - y;
  if (number == 3) return x * y;
  if (number == 4) return x / y;
  if (number == 5) return pow(x, y);
  if (number == 6) return min(x, y);
  if (number == 7) return max(x, y);
  return x;
}

struct Expression {
  size_t outer = 0, two = 0, first = 0, second = 0;
};

// An expression of the score and a captured number.
template <class T>
T expression(const Expression& e, const T& s, const T& y) {
  return of_one(e.outer, of_two(e.two, of_one(e.first, s), of_one(e.second, y)));
}

std::vector<Expression> every_expression() {
  std::vector<Expression> all;
  for (size_t outer = 0; outer < kOfOne.size(); ++outer) {
    for (size_t first = 0; first < kOfOne.size(); ++first) all.push_back({outer, 0, first, 0});
    for (size_t two = 1; two < kOfTwo.size(); ++two) all.push_back({outer, two, 0, 0});
  }
  for (size_t inner = 1; inner < kOfOne.size(); ++inner) {
    for (size_t two = 1; two < kOfTwo.size(); ++two) {
      all.push_back({0, two, inner, 0});
      all.push_back({0, two, 0, inner});
    }
  }
  return all;
}

// Scores and captured numbers, each pair of them four times: of four neighbours, the first takes an
// expression, the second only its first part, and the others neither.
struct Points {
  at::Tensor scores, numbers, takes_all, takes_part;

  explicit Points(at::ScalarType type) {
    std::vector<double> s, y;
    for (const double a : {-2.0, -1.0, 0.0, 0.25, 1.0, 2.0}) {
      for (const double b : {-2.0, -1.0, 0.0, 0.25, 1.0, 2.0}) {
        s.insert(s.end(), 4, a);
        y.insert(y.end(), 4, b);
      }
    }
    scores = at::tensor(s, at::kDouble).to(type).requires_grad_(true);
    numbers = at::tensor(y, at::kDouble).to(type).requires_grad_(true);
    const auto place = at::arange(scores.numel()).remainder(4);
    takes_all = place.eq(0);
    takes_part = place.eq(1);
  }
};

struct Derivatives {
  // By scores and by captured numbers; the second ones are those of the sum of the first ones.
  std::array<at::Tensor, 2> first, second;
};

// The derivatives of a sum. `twice`: also the second ones.
Derivatives derivatives_of(const at::Tensor& sum, const Points& points, bool twice) {
  const torch::autograd::variable_list leaves = {points.scores, points.numbers};
  const auto by_leaves = [&](const at::Tensor& y, bool again) {
    std::array<at::Tensor, 2> found;
    if (y.requires_grad()) {
      const auto gradients = grad({y}, leaves, {}, /*retain_graph=*/again, again, /*allow_unused=*/true);
      for (size_t n = 0; n < 2; ++n) found[n] = gradients[n];
    }
    for (size_t n = 0; n < 2; ++n) {
      if (!found[n].defined()) found[n] = at::zeros_like(leaves[n]);
    }
    return found;
  };
  Derivatives result{by_leaves(sum, twice), {}};
  if (twice) result.second = by_leaves(result.first[0].sum() + result.first[1].sum(), false);
  return result;
}

// The derivatives that the branches of `score_of` should have, from PyTorch's of the parts.
Derivatives expected(const Expression& e) {
  const Points points(at::kDouble);
  const Stock s(points.scores), y(points.numbers);
  const auto all = derivatives_of(expression(e, s, y).x.sum(), points, true);
  const auto part = derivatives_of(of_one(e.first, s).x.sum(), points, true);
  const auto of_lanes = [&](const at::Tensor& taken, const at::Tensor& of_part) {
    const auto none = at::zeros_like(taken);
    return -2 * at::where(points.takes_all, taken, at::where(points.takes_part, of_part, none)).detach();
  };
  Derivatives result;
  for (size_t n = 0; n < 2; ++n) {
    result.first[n] = of_lanes(all.first[n], part.first[n]);
    result.second[n] = of_lanes(all.second[n], part.second[n]);
  }
  return result;
}

// An expression in one branch, what it is computed of in another, and branches within branches; the third
// branch is multiplied by Inf.
ScoreMod score_of(const Expression& e, const Points& points) {
  const auto number = captured(points.numbers);
  const int64_t count = points.numbers.numel();
  return score_mod([=](auto s, auto pair) {
    const auto place = pair.query + (count - 1);
    const auto shown = place % 4 < 2;
    const auto first = of_one(e.first, s);
    const auto all = of_one(e.outer, of_two(e.two, first, of_one(e.second, number(place))));
    return 2.0f * where(shown, 1.0f - where(place % 2 == 0, all, first), 3.0f) * where(shown, 1.0f, kHuge);
  });
}

// Those derivatives by attention of one key, whose weight is the score.
Derivatives by_attention(const Expression& e, at::ScalarType type, Backend backend, bool twice) {
  const Points points(type);
  const auto one = at::ones({1, 1, 1, 1}, type);
  const auto y = attention(points.scores.view({1, 1, -1, 1}), one, one, {.scale = 1.0, .backend = backend},
                           {.score = score_of(e, points), .normalise = Normalise::None})
                     .output;
  return derivatives_of(y.sum(), points, twice);
}

// Says where derivatives by scores (0) or captured numbers (1) are not those that they should be: 0 must be
// exact where a branch hides what they are by, and elsewhere NaN and Inf are alike.
std::string complaint(const Derivatives& all, size_t by, bool second, const Derivatives& expected,
                      double tolerance) {
  const auto numbers = [&](const Derivatives& d) {
    return (second ? d.second : d.first)[by].detach().to(at::kDouble).contiguous();
  };
  const auto got = numbers(all), want = numbers(expected);
  for (int64_t n = 0; n < want.numel(); ++n) {
    const double x = got.const_data_ptr<double>()[n], y = want.const_data_ptr<double>()[n];
    const bool hidden = n % 4 > (by == 0 ? 1 : 0);
    const bool right = hidden              ? x == 0.0
                       : !std::isfinite(y) ? !std::isfinite(x)
                                           : std::abs(x - y) <= tolerance * std::max(1.0, std::abs(y));
    if (!right) return "at " + std::to_string(n) + ": " + std::to_string(x) + ", not " + std::to_string(y);
  }
  return "";
}

std::string text_of(const Expression& e) {
  return std::string(kOfOne[e.outer]) + " of " + kOfTwo[e.two] + ", x: " + kOfOne[e.first] +
         " of s, y: " + kOfOne[e.second] + " of a captured number";
}

}  // namespace

TEST_CASE("hidden branches: every function and every pair of functions, in both readings",
          "[score][hidden]") {
  for (const auto& e : every_expression()) {
    INFO(text_of(e));
    const auto want = expected(e);
    const auto definition = by_attention(e, at::kDouble, Backend::Reference, /*twice=*/true);
    for (const size_t by : {0, 1}) {
      INFO("by " << (by == 0 ? "the score" : "the captured number"));
      CHECK(complaint(definition, by, /*second=*/false, want, 1e-12) == "");
      CHECK(complaint(definition, by, /*second=*/true, want, 1e-12) == "");
    }
    for_each_instruction_set([&](const std::string& limit) {
      INFO("instruction set " << limit);
      const auto kernel = by_attention(e, at::kFloat, Backend::Native, /*twice=*/false);
      for (const size_t by : {0, 1}) {
        INFO("by " << (by == 0 ? "the score" : "the captured number"));
        CHECK(complaint(kernel, by, /*second=*/false, want, 1e-3) == "");
      }
    });
  }
}

namespace {

struct Tables {
  at::Tensor factors, terms;  // (L, S)
};

struct HiddenCall {
  at::Tensor q, k, v, taken;  // taken: bool (L, S)
  Tables clean, poisoned;

  HiddenCall(at::ScalarType type, int64_t queries, int64_t keys) {
    at::manual_seed(11);
    const auto leaf = [&](const at::Tensor& x) { return x.to(type).requires_grad_(true); };
    q = leaf(at::randn({2, 4, queries, 8}, at::kDouble));
    k = leaf(at::randn({2, 2, keys, 8}, at::kDouble));
    v = leaf(at::randn({2, 2, keys, 8}, at::kDouble));
    taken = at::rand({queries, keys}).gt(0.4);
    clean = {leaf(at::ones({queries, keys}, at::kDouble)), leaf(at::zeros({queries, keys}, at::kDouble))};
    const auto among = [&](const std::vector<double>& numbers) {
      const auto chosen = at::randint(static_cast<int64_t>(numbers.size()), {queries, keys}, at::kLong);
      return at::tensor(numbers, at::kDouble).take(chosen);
    };
    poisoned = {
        leaf(at::where(taken, clean.factors.to(at::kDouble), among({0, 0, -1, kNaN, kInfinity, 300}))),
        leaf(at::where(taken, clean.terms.to(at::kDouble), among({0, 0, -3, kNaN, -kInfinity, 1e30})))};
  }

  // The output with a function of positive numbers where pairs are taken, and of any numbers elsewhere.
  at::Tensor output(size_t function, const Tables& tables, AttentionOptions options, Backend backend,
                    bool normalise) const {
    const auto factor = captured(tables.factors), term = captured(tables.terms), take = captured(taken);
    const auto first = q.size(2) - k.size(2);
    const auto score = score_mod([=](auto s, auto pair) {
      const auto i = pair.query + first;
      const auto x = (tanh(s) * 0.5f + 1.0f) * factor(i, pair.key) + term(i, pair.key);
      const auto deep = of_one(function, x) * x;
      const auto within = where(take(i, pair.key) < 0.5f, 1.0f / deep, sin(s));
      return where(take(i, pair.key) > 0.5f, tanh(deep), 0.25f * s + where(s > 9.0f, within, 0.0f));
    });
    options.backend = backend;
    at::manual_seed(3);
    return attention(q, k, v, options,
                     {.score = score, .normalise = normalise ? Normalise::Softmax : Normalise::None})
        .output;
  }

  torch::autograd::variable_list leaves(const Tables& tables) const {
    return {q, k, v, tables.factors, tables.terms};
  }
};

}  // namespace

TEST_CASE("hidden branches: poisoned numbers behind one change no gradient of attention", "[score][hidden]") {
  const auto function = GENERATE(range(size_t{0}, kOfOne.size()));
  const std::array<AttentionOptions, 4> variants = {
      AttentionOptions{}, AttentionOptions{.causal = Causal::BottomRight, .softcap = 3.0},
      AttentionOptions{.window = {9, 4}, .dropout_p = 0.2}, AttentionOptions{.softcap = 2.0}};
  const auto number = function % variants.size();
  INFO(kOfOne[function] << ", variant " << number);
  for (const auto backend : kBothBackends) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      if (backend == Backend::Native && type == at::kDouble) continue;
      INFO("backend " << to_string(backend) << ", " << type);
      const HiddenCall call(type, 21, 37);
      const auto output = [&](const Tables& tables) {
        return call.output(function, tables, variants[number], backend, /*normalise=*/number != 3);
      };
      const auto want = output(call.clean), got = output(call.poisoned);
      CHECK(at::equal(got, want));
      at::manual_seed(4);
      const auto direction = at::randn(want.sizes(), at::kDouble).to(type);
      const auto wanted = grad({want}, call.leaves(call.clean), {direction}, /*retain_graph=*/true),
                 found = grad({got}, call.leaves(call.poisoned), {direction}, /*retain_graph=*/true);
      for (size_t n = 0; n < wanted.size(); ++n) {
        INFO("gradient " << n);
        CHECK(at::equal(found[n], wanted[n]));
      }
      const auto twice = [&](const at::Tensor& y, const torch::autograd::variable_list& leaves) {
        at::Tensor sum;
        for (const auto& gradient :
             grad({y}, leaves, {direction}, /*retain_graph=*/true, /*create_graph=*/true)) {
          const auto squares = gradient.square().sum();
          sum = sum.defined() ? sum + squares : squares;
        }
        return grad({sum}, leaves);
      };
      const auto wanted_twice = twice(want, call.leaves(call.clean)),
                 found_twice = twice(got, call.leaves(call.poisoned));
      for (size_t n = 0; n < wanted_twice.size(); ++n) {
        INFO("second derivative " << n);
        CHECK(at::equal(found_twice[n], wanted_twice[n]));
      }
    }
  }
}

TEST_CASE("hidden branches: a gradient of NaN reaches what is taken, and nothing else", "[score][hidden]") {
  const int64_t queries = 19, keys = 23;
  at::manual_seed(2);
  const auto q0 = at::randn({1, 2, queries, 8}), k0 = at::randn({1, 2, keys, 8}),
             v = at::randn({1, 2, keys, 8});
  const auto table0 = at::rand({keys});
  for (const auto backend : kBothBackends) {
    INFO("backend " << to_string(backend));
    const auto k = k0.clone().requires_grad_(true), table = table0.clone().requires_grad_(true);
    const auto number = captured(table);
    // One score is NaN, and so are all weights of its query; its scores of even keys depend on nothing.
    const auto score = score_mod([=](auto s, auto pair) {
      const auto poison = where((pair.query == 7) & (pair.key == 4), sqrt(-1.0f - s * s), 0.0f);
      return where(pair.key % 2 == 0, 0.5f, s * number(pair.key)) + poison;
    });
    const auto y = attention(q0, k, v, {.backend = backend}, {.score = score}).output;
    const auto gradients = grad({y.sum()}, {k, table});
    for (int64_t j = 0; j < keys; ++j) {
      INFO("key " << j);
      const bool depends = j % 2 == 1 || j == 4;
      CHECK(gradients[0].select(2, j).isnan().any().item<bool>() == depends);
      if (!depends) CHECK(gradients[0].select(2, j).eq(0).all().item<bool>());
      CHECK(gradients[1][j].isnan().item<bool>() == (j % 2 == 1));
      if (j % 2 == 0) CHECK(gradients[1][j].item<float>() == 0.0f);
    }
  }
}

TEST_CASE(
    "hidden branches: a pair that is shown has PyTorch's NaN of 0 times Inf, one that a mask hides has 0",
    "[score][hidden]") {
  const int64_t queries = 20, keys = 20;
  at::manual_seed(2);
  const auto q = at::randn({1, 1, queries, 8}), k = at::randn({1, 1, keys, 8}),
             v = at::randn({1, 1, keys, 8});
  auto keep = at::ones({queries, keys}, at::kBool);
  keep.select(1, 0).fill_(false);  // key 0 is hidden from all queries, key 1 from the one of the loss
  keep.select(0, 0).select(0, 1).fill_(false);
  for (const auto backend : kBothBackends) {
    INFO("backend " << to_string(backend));
    const auto table = at::ones({keys});
    table.slice(0, 0, 2).zero_();  // the root of 0 has an infinite derivative
    table.requires_grad_(true);
    const auto number = captured(table);
    const auto score = score_mod([=](auto s, auto pair) { return s + sqrt(number(pair.key)); });
    const auto y =
        attention(q, k, v, {.backend = backend}, {.mask = Mask::keep(keep), .score = score}).output;
    const auto gradient = grad({y.select(2, 0).sum()}, {table})[0];
    CHECK(gradient[0].item<float>() == 0.0f);
    CHECK(gradient[1].isnan().item<bool>());
    CHECK(gradient.slice(0, 2, keys).isfinite().all().item<bool>());
  }
}
