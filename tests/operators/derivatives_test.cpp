// Gradients of the operator `attention`: those of every differentiable argument and result, second
// derivatives, changes before the backward pass.

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "operators/operator_calls.h"
#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using namespace attentive::test;

namespace {

// A call in which everything that can have a gradient has one.
OptionCall learned_call(at::ScalarType type) {
  auto call = plain_call();
  call.options.causal = Causal::BottomRight;
  call.extras.mask = Mask::bias(at::randn({4, 7, 9}, at::kDouble).unsqueeze(0));
  call.extras.alibi_slopes = at::rand({2, 4}, at::kDouble);
  call.extras.sinks = at::randn({4}, at::kDouble);
  call.bias_gradient = call.slopes_gradient = true;
  call = cast(call, type);
  call.extras.sinks.requires_grad_();
  return call;
}

std::vector<at::Tensor> leaves_with_sinks(const OptionCall& call) {
  auto leaves = leaves_of(call);
  leaves.push_back(call.extras.sinks);
  return leaves;
}

// First derivatives of one result, or of all of them, in fixed directions.
std::vector<at::Tensor> derivatives(const AttentionResult& result, const std::vector<at::Tensor>& leaves,
                                    bool create_graph) {
  std::vector<at::Tensor> outputs, directions;
  for (const auto& x : {result.output, result.weights, result.logsumexp}) {
    if (!x.defined()) continue;
    at::manual_seed(41);
    outputs.push_back(x);
    directions.push_back(at::randn(x.sizes(), x.options()));
  }
  return torch::autograd::grad(outputs, leaves, directions, /*retain_graph=*/create_graph, create_graph,
                               /*allow_unused=*/true);
}

// The kernel gives the bits of the function, except for gradients of float32 weights: the function reads the
// weights that it returned, and the operator computes them again.
Tolerance allowed_for_gradients(const OptionCall& call) {
  const auto type = call.q.scalar_type();
  const bool exact = type != at::kDouble && call.options.dropout_stream != DropoutStream::Aten &&
                     (call.extras.weights == Weights::None || type != at::kFloat);
  return exact ? kEqual : tolerance_of(type, /*gradient=*/true);
}

void check_gradients(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want,
                     const Tolerance& allowed) {
  REQUIRE(got.size() == 6);
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("gradient " << i << " of q, k, v, bias, slopes, sinks");
    REQUIRE(got[i].defined());  // an operator has no undefined results
    CHECK(difference(got[i], want[i].defined() ? want[i] : at::zeros_like(got[i]), allowed) == "");
  }
}

}  // namespace

TEST_CASE("every argument and every result has its gradient", "[operators][gradients]") {
  const auto type = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  const auto weights = GENERATE(Weights::None, Weights::Clean, Weights::Dropped);
  const bool logsumexp = GENERATE(false, true);
  auto call = learned_call(type);
  call.options.dropout_p = 0.3;
  call.options.dropout_stream = GENERATE(DropoutStream::Counter, DropoutStream::Aten);
  call.extras.weights = weights;
  call.extras.logsumexp = logsumexp;
  const auto leaves = leaves_with_sinks(call);
  at::manual_seed(7);
  const auto got = derivatives(by_operator(call), leaves, false);
  at::manual_seed(7);
  const auto want = derivatives(attention(call.q, call.k, call.v, call.options, call.extras), leaves, false);
  check_gradients(got, want, allowed_for_gradients(call));
}

TEST_CASE("a result that is not used has no part in the gradients", "[operators][gradients]") {
  const auto type = GENERATE(at::kFloat, at::kDouble);
  auto call = learned_call(type);
  call.extras.weights = Weights::Clean;
  call.extras.logsumexp = true;
  const auto member =
      GENERATE(&AttentionResult::output, &AttentionResult::weights, &AttentionResult::logsumexp);
  AttentionResult one_of_ours, one_of_theirs;
  one_of_ours.*member = by_operator(call).*member;
  one_of_theirs.*member = attention(call.q, call.k, call.v, call.options, call.extras).*member;
  const auto leaves = leaves_with_sinks(call);
  check_gradients(derivatives(one_of_ours, leaves, false), derivatives(one_of_theirs, leaves, false),
                  allowed_for_gradients(call));
}

TEST_CASE("gradients of the operator can be differentiated again", "[operators][gradients]") {
  const auto type = GENERATE(at::kFloat, at::kDouble);
  auto call = learned_call(type);
  call.options.dropout_p = 0.3;
  call.options.dropout_stream = GENERATE(DropoutStream::Counter, DropoutStream::Aten);
  call.extras.weights = Weights::Clean;
  call.extras.logsumexp = true;
  const auto leaves = leaves_with_sinks(call);
  const auto second = [&](const AttentionResult& result) {
    const auto first = derivatives(result, leaves, /*create_graph=*/true);
    at::Tensor sum;
    for (const auto& x : first) sum = sum.defined() ? sum + x.square().sum() : x.square().sum();
    return torch::autograd::grad({sum}, leaves, {}, false, false, /*allow_unused=*/true);
  };
  at::manual_seed(7);
  const auto got = second(by_operator(call));
  at::manual_seed(7);
  const auto want = second(attention(call.q, call.k, call.v, call.options, call.extras));
  check_gradients(got, want, tolerance_of(type, /*gradient=*/true));
}

TEST_CASE("a tensor that was changed before the backward pass is reported", "[operators][gradients]") {
  auto call = cast(plain_call(), at::kFloat);
  const auto bias = at::randn({7, 9}), keep = at::rand({7, 9}).gt(0.2);
  const auto results = call_operator("attention", {call.q, call.k, call.v}, {{"bias", bias}, {"keep", keep}});
  GENERATE(true, false) ? bias.add_(1) : keep.logical_not_();
  CHECK(error_of<c10::Error>([&] {
          results[0].toTensor().sum().backward();
        }).find("modified by an inplace operation") != std::string::npos);
}

TEST_CASE("gradients have the layout of their tensors", "[operators][gradients]") {
  const auto type = GENERATE(at::kFloat, at::kDouble);
  const auto x = at::randn({2, 7, 3, 4, 8}, type).requires_grad_();
  const auto parts = x.permute({2, 0, 3, 1, 4}).unbind(0);
  const auto results = call_operator("attention", {parts[0], parts[1], parts[2]});
  results[0].toTensor().sum().backward();
  CHECK(x.grad().defined());
  const auto want = x.detach().clone().requires_grad_();
  const auto again = want.permute({2, 0, 3, 1, 4}).unbind(0);
  attention(again[0], again[1], again[2]).sum().backward();
  CHECK(x.grad().equal(want.grad()));
}
