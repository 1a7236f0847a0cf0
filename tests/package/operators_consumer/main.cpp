// A user's program that runs TorchScript with the package's operators, beside a call of the package's
// function.

#include <cstdio>

#include <ATen/ops/rand.h>
#include <torch/jit.h>

#include <attentive/functional/attention.h>
#include <attentive/operators.h>

int main() {
  attentive::load_operators();
  const auto unit = torch::jit::compile(R"(
def attend(x):
    return torch.ops.attentive.attention(x, x, x, causal="bottom_right")[0]
)");
  const auto x = at::rand({1, 4, 64, 32});
  const auto y = unit->run_method("attend", x).toTensor();
  const auto same = y.equal(attentive::attention(x, x, x, {.causal = attentive::Causal::BottomRight}));
  std::printf("the program and the function %s\n", same ? "agree" : "differ");
  return same ? 0 : 1;
}
