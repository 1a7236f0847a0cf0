#include <array>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <attentive/functional/explain.h>

#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr std::array kBackends = {Backend::Reference, Backend::Torch, Backend::Native};
constexpr std::array kTypes = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

bool registered(const OptionCall& call, Backend backend) {
  for (const auto& candidate : explain(call.q, call.k, call.v, call.options, call.extras).candidates) {
    if (candidate.backend == backend) return true;
  }
  return false;
}

// Compares a backend in one dtype with the float64 reference of the same (rounded) inputs.
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
  for (const auto type : kTypes) {
    for (const auto backend : kBackends) {
      INFO("dtype " << c10::toString(type) << ", backend " << to_string(backend));
      check_cell(call, type, backend);
    }
  }
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
