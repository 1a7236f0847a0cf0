// Results for tensors without memory have the shapes, dtypes and strides of the results for tensors with
// memory.

#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "operators/operator_calls.h"

using namespace attentive;
using namespace attentive::test;

namespace {

at::IValue without_memory(const at::IValue& value) {
  return value.isTensor() && value.toTensor().defined() ? at::IValue(value.toTensor().detach().to(at::kMeta))
                                                        : value;
}

void check_alike(const std::vector<at::IValue>& meta, const std::vector<at::IValue>& real) {
  REQUIRE(meta.size() == real.size());
  for (size_t i = 0; i < real.size(); ++i) {
    INFO("result " << i);
    const auto &found = meta[i].toTensor(), &wanted = real[i].toTensor();
    CHECK(found.is_meta());
    CHECK(found.sizes() == wanted.sizes());
    CHECK(found.strides() == wanted.strides());
    CHECK(found.scalar_type() == wanted.scalar_type());
  }
}

// Calls an operator for tensors with memory and without.
std::vector<at::IValue> check_operator(const std::string& name, const std::vector<at::IValue>& positional,
                                       const Named& named) {
  auto real = call_operator(name, positional, named);
  std::vector<at::IValue> meta_positional;
  for (const auto& value : positional) meta_positional.push_back(without_memory(value));
  Named meta_named;
  for (const auto& [key, value] : named) meta_named[key] = without_memory(value);
  check_alike(call_operator(name, meta_positional, meta_named), real);
  return real;
}

// Both operators of a call, in inference and for training.
void check_both(const OptionCall& call) {
  const at::NoGradGuard no_grad;
  auto named = arguments_of(call.options, call.extras);
  check_operator("attention", {call.q, call.k, call.v}, named);
  named["for_backward"] = true;
  const auto results = check_operator("attention", {call.q, call.k, call.v}, named);
  named.erase("for_backward");
  named.erase("logsumexp");
  if (results[4].toTensor().numel() > 0) named["dropout_key"] = results[4];
  named["want_bias"] = !call.extras.mask.bias_terms().empty();
  named["want_alibi_slopes"] = call.extras.alibi_slopes.defined();
  named["want_sinks"] = call.extras.sinks.defined();
  const auto gradient = [](bool asked, const at::IValue& of) {
    return asked ? at::IValue(at::randn_like(of.toTensor())) : at::IValue();
  };
  check_operator(
      "attention_backward",
      {gradient(true, results[0]), gradient(call.extras.weights != Weights::None, results[1]),
       gradient(call.extras.logsumexp, results[2]), call.q, call.k, call.v, results[0], results[3]},
      named);
}

}  // namespace

TEST_CASE("operators know the shapes of their results for every option", "[operators][shapes]") {
  const auto n = GENERATE(range(size_t{0}, option_cases().size()));
  const auto type = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  INFO(option_cases()[n].name);
  auto call = plain_call();
  option_cases()[n].apply(call);
  check_both(cast(call, type));
}

TEST_CASE("operators know the shapes of their results for every rank and layout", "[operators][shapes]") {
  const auto leading = GENERATE(std::vector<int64_t>{}, std::vector<int64_t>{3}, std::vector<int64_t>{2, 4},
                                std::vector<int64_t>{1, 1}, std::vector<int64_t>{2, 3, 4});
  const bool transposed = GENERATE(false, true);
  const bool expanded = GENERATE(false, true);
  OptionCall call;
  const auto draw = [&](int64_t rows, int64_t dim) {
    auto sizes = leading;
    sizes.push_back(transposed ? dim : rows);
    sizes.push_back(transposed ? rows : dim);
    auto x = at::randn(sizes);
    if (transposed) x = x.transpose(-1, -2);
    if (expanded && !leading.empty()) x = x.narrow(0, 0, 1).expand(x.sizes());
    return x;
  };
  call.q = draw(5, 8);
  call.k = draw(6, 8);
  call.v = draw(6, 3);
  call.extras.weights = Weights::Clean;
  call.extras.logsumexp = true;
  check_both(call);
}

TEST_CASE("the packed operators know the shapes of their results", "[operators][shapes]") {
  const at::NoGradGuard no_grad;
  const auto q = at::randn({9, 4, 8}), k = at::randn({7, 2, 8}), v = at::randn({7, 2, 5});
  const auto ends_q = at::tensor({0, 4, 9}), ends_k = at::tensor({0, 5, 7}), slopes = at::rand({4});
  Named named{{"alibi_slopes", slopes}, {"logsumexp", GENERATE(true, false)}};
  check_operator("attention_varlen", {q, k, v, ends_q, ends_k}, named);
  named["for_backward"] = true;
  const auto results = check_operator("attention_varlen", {q, k, v, ends_q, ends_k}, named);
  check_operator(
      "attention_varlen_backward",
      {at::randn_like(results[0].toTensor()), at::IValue(), q, k, v, ends_q, ends_k, results[0], results[2]},
      {{"alibi_slopes", slopes}, {"want_alibi_slopes", true}});
}
