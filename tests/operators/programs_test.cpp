// Programs that were written elsewhere come to the operators: TorchScript, and the switch of PyTorch's own
// attention.

#include <sstream>

#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/csrc/jit/serialization/import.h>

#include <attentive/operators.h>

#include "operators/operator_calls.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

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
