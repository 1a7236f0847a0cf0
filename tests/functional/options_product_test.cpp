#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <attentive/functional/explain.h>

#include "support/cells.h"
#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;

namespace {

bool registered(const OptionCall& call, Backend backend) {
  for (const auto& candidate : explain(call.q, call.k, call.v, call.options, call.extras).candidates) {
    if (candidate.backend == backend) return true;
  }
  return false;
}

at::Tensor to_meta(const at::Tensor& x) {
  return x.defined() ? x.detach().to(at::kMeta).requires_grad_(x.requires_grad()) : x;
}

OptionCall on_meta(const OptionCall& call) {
  OptionCall result = call;
  for (auto* x : {&result.q, &result.k, &result.v, &result.extras.alibi_slopes, &result.extras.sinks})
    *x = to_meta(*x);
  Mask mask;
  for (const auto& term : call.extras.mask.keep_terms()) mask &= Mask::keep(to_meta(term));
  for (const auto& term : call.extras.mask.key_keep_terms()) mask &= Mask::key_keep(to_meta(term));
  for (const auto& term : call.extras.mask.key_length_terms()) mask &= Mask::key_lengths(term);
  for (const auto& term : call.extras.mask.bias_terms()) mask &= Mask::bias(to_meta(term));
  result.extras.mask = mask;
  for (auto& x : result.captured) x = to_meta(x);
  for (const auto& define : result.functions) define(result);
  return result;
}

// Compares a backend in one dtype with the float64 reference for the same (rounded) inputs.
void check_cell(const OptionCall& exact, at::ScalarType type, Backend backend) {
  const auto call = cast(exact, type);
  if (!registered(call, backend)) return;
  const auto got = run_on(call, backend);
  if (got.refused) {
    CHECK_FALSE(got.reason.empty());
    CHECK(backend != Backend::Reference);
    return;
  }
  check_result(got, run_on(cast(call, at::kDouble), Backend::Reference), type);
}

void check_all(const OptionCall& call) {
  for (const auto type : kAllTypes) {
    for (const auto backend : kNamedBackends) {
      INFO("dtype " << c10::toString(type) << ", backend " << to_string(backend));
      check_cell(call, type, backend);
    }
  }
}

// Without a softmax there are no sinks and no logsumexp.
bool without_softmax_but_statistics(const OptionCall& call) {
  const auto& extras = call.extras;
  return extras.normalise == Normalise::None &&
         (extras.sinks.defined() || call.options.softmax_plus_one || extras.logsumexp);
}

void check_meta(const OptionCall& given) {
  const auto call = cast(given, at::kFloat);
  const auto want = run_on(call, Backend::Reference);
  const auto got = run_on(on_meta(call), Backend::Auto);
  const auto check = [](const at::Tensor& meta, const at::Tensor& real) {
    REQUIRE(meta.defined() == real.defined());
    if (!real.defined()) return;
    CHECK(meta.is_meta());
    CHECK(meta.sizes() == real.sizes());
    CHECK(meta.scalar_type() == real.scalar_type());
  };
  check(got.result.output, want.result.output);
  check(got.result.weights, want.result.weights);
  check(got.result.logsumexp, want.result.logsumexp);
  REQUIRE(got.gradients.size() == want.gradients.size());
  for (size_t g = 0; g < want.gradients.size(); ++g) check(got.gradients[g], want.gradients[g]);
}

}  // namespace

TEST_CASE("every option on every backend equals the reference or is refused by name", "[options]") {
  check_all(plain_call());
  const auto& cases = option_cases();
  const auto first = GENERATE_COPY(range(size_t{0}, cases.size()));
  INFO("option: " << cases[first].name);
  auto call = plain_call();
  cases[first].apply(call);
  check_all(call);
}

TEST_CASE("every pair of options on every backend equals the reference or is refused by name", "[options]") {
  const auto& cases = option_cases();
  const auto first = GENERATE_COPY(range(size_t{0}, cases.size()));
  for (size_t second = first + 1; second < cases.size(); ++second) {
    if (cases[first].group == cases[second].group) continue;
    INFO("options: " << cases[first].name << " + " << cases[second].name);
    auto call = plain_call();
    cases[first].apply(call);
    cases[second].apply(call);
    check_all(call);
  }
}

TEST_CASE(
    "every function of pairs, with every option and with each other, equals the reference or is refused",
    "[options][score]") {
  const auto& functions = function_cases();
  const auto n = GENERATE_COPY(range(size_t{0}, functions.size()));
  INFO("function: " << functions[n].name);
  auto alone = plain_call();
  functions[n].apply(alone);
  check_all(alone);
  auto others = option_cases();
  others.insert(others.end(), functions.begin() + static_cast<std::ptrdiff_t>(n) + 1, functions.end());
  for (const auto& other : others) {
    if (other.group == functions[n].group) continue;
    INFO("with: " << other.name);
    auto call = plain_call();
    other.apply(call);
    functions[n].apply(call);
    if (without_softmax_but_statistics(call)) {
      CHECK_THROWS_AS(attention(call.q, call.k, call.v, call.options, call.extras), c10::ValueError);
    } else {
      check_all(call);
    }
  }
}

TEST_CASE("every option gives the shapes of its results on meta tensors, forward and backward",
          "[options][meta]") {
  const auto& options = option_cases();
  const auto& functions = function_cases();
  const auto n = GENERATE_COPY(range(size_t{0}, options.size() + functions.size()));
  const auto& option = n < options.size() ? options[n] : functions[n - options.size()];
  INFO("option: " << option.name);
  auto given = plain_call();
  option.apply(given);
  check_meta(given);
}
