// The operator `attention` computes what the function of the same name computes: every option, forward and
// backward, for every dtype and backend.

#include <array>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <attentive/functional/explain.h>

#include "operators/operator_calls.h"
#include "support/autocast.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr std::array kBackends = {Backend::Auto, Backend::Reference, Backend::Native};
constexpr std::array kTypes = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

struct Tolerances {
  Tolerance results, gradients;
};

void check_equal(const OptionResult& got, const OptionResult& want, const Tolerances& allowed) {
  REQUIRE(got.refused == want.refused);
  if (want.refused) {
    CHECK(got.reason == want.reason);
    return;
  }
  for (const auto result : {&OptionResult::result, &OptionResult::inference}) {
    INFO((result == &OptionResult::result ? "with" : "without") << " a graph");
    CHECK(difference((got.*result).output, (want.*result).output, allowed.results) == "");
    CHECK(difference((got.*result).weights, (want.*result).weights, allowed.results) == "");
    CHECK(difference((got.*result).logsumexp, (want.*result).logsumexp, allowed.results) == "");
  }
  REQUIRE(got.gradients.size() == want.gradients.size());
  for (size_t n = 0; n < want.gradients.size(); ++n) {
    INFO("gradient " << n << " of q, k, v, bias, slopes");
    CHECK(difference(got.gradients[n], want.gradients[n], allowed.gradients) == "");
  }
}

// The kernel gives the same bits. Its gradients differ by rounding where the function reads the weights that
// it returned, which the operator computes again. The reference composes other operations under autograd than
// without.
Tolerances allowed_for(const OptionCall& call, Backend backend) {
  const auto type = call.q.scalar_type();
  const Tolerances rounding{tolerance_of(type), tolerance_of(type, /*gradient=*/true)};
  auto options = call.options;
  options.backend = Backend::Auto;
  const bool native = backend != Backend::Reference &&
                      explain(call.q, call.k, call.v, options, call.extras).chosen == Backend::Native;
  if (!native) return rounding;
  const bool reads_weights = call.extras.weights != Weights::None && type == at::kFloat;
  return {kEqual, reads_weights ? rounding.gradients : kEqual};
}

void check_call(const OptionCall& plain, at::ScalarType type, Backend backend) {
  INFO("dtype " << c10::toString(type) << ", backend " << to_string(backend));
  auto call = cast(plain, type);
  const auto got = run_on(call, backend, by_operator);
  // The operator's own stream is Counter, for every backend.
  if (call.options.dropout_stream == DropoutStream::Any) call.options.dropout_stream = DropoutStream::Counter;
  check_equal(got, run_on(call, backend), allowed_for(call, backend));
}

}  // namespace

TEST_CASE("the operator computes every option as the function does", "[operators][options]") {
  const auto n = GENERATE(range(size_t{0}, option_cases().size()));
  auto call = plain_call();
  option_cases()[n].apply(call);
  INFO(option_cases()[n].name);
  for (const auto type : kTypes) {
    for (const auto backend : kBackends) check_call(call, type, backend);
  }
}

TEST_CASE("the operator computes every pair of options as the function does", "[operators][options]") {
  const auto& cases = option_cases();
  const auto first = GENERATE(range(size_t{0}, option_cases().size()));
  for (size_t second = first + 1; second < cases.size(); ++second) {
    if (cases[first].group == cases[second].group) continue;
    INFO(cases[first].name << " and " << cases[second].name);
    auto call = plain_call();
    cases[first].apply(call);
    cases[second].apply(call);
    check_call(call, at::kFloat, Backend::Auto);
    check_call(call, at::kDouble, Backend::Auto);
  }
}

TEST_CASE("the operator accepts every rank", "[operators][options]") {
  at::manual_seed(3);
  const auto leading = GENERATE(std::vector<int64_t>{}, std::vector<int64_t>{3}, std::vector<int64_t>{2, 4},
                                std::vector<int64_t>{2, 3, 4});
  OptionCall call;
  const auto draw = [&](int64_t rows) {
    auto sizes = leading;
    sizes.push_back(rows);
    sizes.push_back(8);
    return at::randn(sizes, at::kDouble);
  };
  call.q = draw(5);
  call.k = draw(6);
  call.v = draw(6);
  call.options.causal = Causal::BottomRight;
  call.extras.weights = Weights::Clean;
  call.extras.logsumexp = true;
  for (const auto type : kTypes) check_call(call, type, Backend::Auto);
}

TEST_CASE("a key that the operator drew repeats the call", "[operators][dropout]") {
  const auto stream = GENERATE("any", "counter", "aten");
  const auto type = GENERATE(at::kFloat, at::kDouble);
  const auto call = cast(plain_call(), type);
  const Named dropout{{"dropout_p", 0.4}, {"dropout_stream", stream}};
  const auto drawn = call_operator("attention", {call.q, call.k, call.v}, dropout);
  auto again = dropout;
  again["dropout_key"] = drawn[4];
  at::manual_seed(91);
  const auto before = at::rand({1}).item<float>();
  at::manual_seed(91);
  const auto repeated = call_operator("attention", {call.q, call.k, call.v}, again);
  CHECK(at::rand({1}).item<float>() == before);  // nothing was drawn
  CHECK(repeated[0].toTensor().equal(drawn[0].toTensor()));
  CHECK(repeated[4].toTensor().equal(drawn[4].toTensor()));
  const auto other = call_operator("attention", {call.q, call.k, call.v}, dropout);
  CHECK_FALSE(other[0].toTensor().equal(drawn[0].toTensor()));
}

TEST_CASE("draw_dropout_key draws what a call draws", "[operators][dropout]") {
  const auto call = cast(plain_call(), at::kFloat);
  at::manual_seed(5);
  const auto key = call_operator("draw_dropout_key", {});
  at::manual_seed(5);
  const auto drawn = call_operator("attention", {call.q, call.k, call.v}, {{"dropout_p", 0.4}});
  CHECK(drawn[4].toTensor().equal(key[0].toTensor()));
}

TEST_CASE("under autocast, the operator casts q, k and v", "[operators][autocast]") {
  const auto dtype = GENERATE(at::kBFloat16, at::kHalf);
  const auto call = cast(plain_call(), at::kFloat);
  OptionResult got, want;
  {
    const CpuAutocast autocast(dtype);
    got = run_on(call, Backend::Auto, by_operator);
    want = run_on(call, Backend::Auto);
  }
  CHECK(got.result.output.scalar_type() == dtype);
  CHECK(got.gradients[0].scalar_type() == at::kFloat);
  check_equal(got, want, {kEqual, kEqual});
}

TEST_CASE("statistics are returned for a backward pass alone", "[operators][options]") {
  const auto call = cast(plain_call(), at::kFloat);
  CHECK(call_operator("attention", {call.q, call.k, call.v})[3].toTensor().sizes() ==
        at::IntArrayRef{2, 2, 4, 7});
  const at::NoGradGuard no_grad;
  CHECK(call_operator("attention", {call.q, call.k, call.v})[3].toTensor().numel() == 0);
}

TEST_CASE("outputs lie in memory by token", "[operators][options]") {
  const auto type = GENERATE(at::kFloat, at::kDouble);
  const auto call = cast(plain_call(), type);
  CHECK(call_operator("attention", {call.q, call.k, call.v})[0].toTensor().transpose(1, 2).is_contiguous());
}

TEST_CASE("explain answers by an operator", "[operators][explain]") {
  const auto call = cast(plain_call(), at::kFloat);
  const auto found = call_operator("explain", {call.q, call.k, call.v}, {{"causal", "top_left"}});
  CHECK(found[0].toStringRef() == "native");
  const auto want = explain(call.q, call.k, call.v, {.causal = Causal::TopLeft});
  REQUIRE(found[1].toListRef().size() == want.candidates.size());
  for (size_t i = 0; i < want.candidates.size(); ++i) {
    CHECK(found[2].toBoolList().get(i) == want.candidates[i].available);
    CHECK(found[3].toListRef()[i].toStringRef() == want.candidates[i].reason);
  }
  CHECK(
      call_operator("explain", {call.q, call.k, call.v}, {{"dropout_p", 0.5}, {"dropout_stream", "aten"}})[4]
          .toListRef()
          .size() == 1);
}
