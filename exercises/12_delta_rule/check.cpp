#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <attentive/functional/gated_delta_rule.h>

#include "support/exercise.h"
#include "task.h"

namespace exercises {
namespace {

struct Tokens {
  at::Tensor q, k, v, gate, beta, state;

  // Tokens without decay that start from an empty state; keys have norm 1.
  Tokens(int64_t T, int64_t key_dim, int64_t value_dim)
      : q(at::randn({T, key_dim})),
        k(at::randn({T, key_dim})),
        v(at::randn({T, value_dim})),
        gate(at::zeros({T})),
        beta(at::rand({T})),
        state(at::zeros({key_dim, value_dim})) {
    k = k / k.norm(2, -1, true);
  }

  // Compares with the library, which takes a batch of heads.
  void check(int hint, const std::string& what) const {
    const auto head = [](const at::Tensor& x) { return x.unsqueeze(0).unsqueeze(0); };
    const auto expected = attentive::gated_delta_rule(head(q), head(k), head(v), head(gate), head(beta),
                                                      {.scale = 1.0}, head(state));
    const auto [output, last] = delta_rule(q, k, v, gate, beta, state);
    const auto name = " (" + with("T", q.size(0)) + ")";
    want_close(output, expected.output[0][0], hint, what + name);
    want_close(last, expected.state[0][0], hint, "the state after the last token" + name);
  }
};

}  // namespace
}  // namespace exercises

EXERCISE(12) {
  using namespace exercises;
  Tokens(1, 3, 2).check(1, "one token does not write beta times its value");
  Tokens(5, 3, 2).check(2, "a token does not correct what the state answers to its key");
  Tokens decaying(4, 3, 5);
  decaying.gate = -at::rand({4});
  decaying.state = at::randn({3, 5});
  decaying.check(3, "the state does not decay before it is read and corrected");
  Tokens longer(70, 8, 4);
  longer.gate = -at::rand({70});
  longer.check(3, "many tokens");
}
