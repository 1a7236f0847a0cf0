// The operator `attention` computes what the function of the same name computes: every option, forward and
// backward, for every dtype and backend.

#include <array>
#include <sstream>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/csrc/jit/serialization/import.h>

#include <attentive/functional/explain.h>
#include <attentive/operators.h>

#include "operators/operator_calls.h"
#include "support/autocast.h"
#include "support/compare.h"
#include "support/errors.h"

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

TEST_CASE("the operator draws nothing: a key gives a call's bits", "[operators][dropout]") {
  const auto stream = GENERATE("any", "counter", "aten");
  const auto type = GENERATE(at::kFloat, at::kDouble);
  const auto call = cast(plain_call(), type);
  const Named dropout{{"dropout_p", 0.4}, {"dropout_stream", stream}};
  const auto drawn = [&] { return with_key(dropout, {2, 4, 7, 9}); };
  const auto output = [&](const Named& named) {
    return call_operator("attention", {call.q, call.k, call.v}, named)[0].toTensor();
  };
  const auto keyed = drawn();
  const auto want = output(keyed);
  at::manual_seed(91);
  const auto before = at::rand({1}).item<float>();
  at::manual_seed(91);
  CHECK(output(keyed).equal(want));
  CHECK(at::rand({1}).item<float>() == before);
  CHECK_FALSE(output(drawn()).equal(want));
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

// Gradients of the operator `attention`: those of every differentiable argument and result, second
// derivatives, changes before the backward pass.

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

// Programs that were written elsewhere come to the operators: TorchScript, and the switch of PyTorch's own
// attention.

namespace {

// `attentive` as the namespace of operators in a source; Python's compiler knows it as torch.ops.attentive.
struct OperatorNames : torch::jit::Resolver {
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(const std::string& name, torch::jit::GraphFunction&,
                                                         const torch::jit::SourceRange&) override {
    return name == "attentive" ? std::make_shared<torch::jit::BuiltinModule>("attentive") : nullptr;
  }
};

}  // namespace

TEST_CASE("TorchScript calls the operators and is differentiated", "[operators][torchscript]") {
  load_operators();
  torch::jit::Module written("Attend");
  written.define(R"(
def forward(self, q, k, v):
    return attentive.attention(q, k, v, causal="bottom_right", window_left=3)[0]
)",
                 std::make_shared<OperatorNames>());
  std::stringstream file;  // as from a file of another program
  written.save(file);
  auto program = torch::jit::load(file);
  at::manual_seed(3);
  const auto q = at::randn({2, 4, 9, 8}).requires_grad_(), k = at::randn({2, 2, 9, 8}).requires_grad_(),
             v = at::randn({2, 2, 9, 8}).requires_grad_();
  const AttentionOptions options{.causal = Causal::BottomRight, .window = {3, -1}};
  const auto want = attention(q, k, v, options);
  want.square().sum().backward();
  const auto wanted = q.grad().clone();
  for (int call = 0; call < 4; ++call) {  // the executor changes its graph during the first calls
    q.mutable_grad().reset();
    const auto got = program.forward({q, k, v}).toTensor();
    CHECK(got.equal(want));
    got.square().sum().backward();
    CHECK(q.grad().equal(wanted));
  }
}

TEST_CASE("the operators switch PyTorch's own attention", "[operators][accelerate]") {
  const auto x = at::randn({1, 4, 512, 64});
  const auto taken = [] { return call_operator("sdpa_report", {})[0].toInt(); };
  call_operator("reset_sdpa_report", {});
  CHECK_FALSE(call_operator("accelerates_sdpa", {})[0].toBool());
  call_operator("accelerate_sdpa", {});
  CHECK(call_operator("accelerates_sdpa", {})[0].toBool());
  at::scaled_dot_product_attention(x, x, x);
  CHECK(taken() == 1);
  call_operator("accelerate_sdpa", {}, {{"exact_dropout", true}});
  at::scaled_dot_product_attention(x, x, x, {}, 0.1);
  const auto report = call_operator("sdpa_report", {});
  REQUIRE(report[1].toListRef().size() == 1);
  CHECK(report[1].toListRef()[0].toStringRef() ==
        "dropout is left to PyTorch's random numbers (SdpaDropout::Exact)");
  CHECK(report[2].toIntList().get(0) == 1);
  call_operator("stop_accelerating_sdpa", {});
  at::scaled_dot_product_attention(x, x, x);
  CHECK(taken() == 1);
  call_operator("reset_sdpa_report", {});
  CHECK(taken() == 0);
}
