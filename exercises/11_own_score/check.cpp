#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include "support/exercise.h"
#include "task.h"

namespace exercises {
namespace {

struct Call {
  at::Tensor q, k, v, table, documents;

  // Documents of 4 tokens each, whose numbers do not ascend.
  Call(int64_t heads, int64_t L, int64_t S, int64_t distances)
      : q(at::randn({2, heads, L, 4})),
        k(at::randn({2, heads, S, 4})),
        v(at::randn({2, heads, S, 4})),
        table(at::randn({heads, distances})),
        documents(at::arange(S).div(4, "floor").mul(5).remainder(7)) {}

  std::string name() const {
    return std::to_string(q.size(2)) + " queries, " + std::to_string(k.size(2)) + " keys, " +
           with("heads", q.size(1)) + ", " + with("D", table.size(1));
  }

  // Attention with one of the functions, or with both.
  at::Tensor by_functions(bool scored, bool masked) const {
    const auto own = user_functions(table, documents);
    attentive::AttentionExtras extras;
    if (scored) extras.score = own.score;
    if (masked) extras.block_mask = own.block_mask;
    return attentive::attention(q, k, v, {}, extras).output;
  }

  // Tensor operations over all pairs compute it, too.
  at::Tensor composed(bool scored, bool masked) const {
    const int64_t L = q.size(2), S = k.size(2);
    const auto i = at::arange(S - L, S).unsqueeze(1), j = at::arange(S);
    auto scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
    if (scored) {
      const auto distance = (i - j).abs().clamp_max(table.size(1) - 1);
      scores = scores + table.index_select(1, distance.flatten()).view({-1, L, S});
    }
    if (masked) {
      const auto hidden = documents.slice(0, S - L).unsqueeze(1).ne(documents);
      scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    }
    return at::matmul(scores.softmax(-1), v);
  }
};

void check(const Call& call, bool scored, bool masked, int hint, const std::string& what) {
  want_close(call.by_functions(scored, masked), call.composed(scored, masked), hint,
             what + " (" + call.name() + ")");
}

// The gradient of the table, by autograd over the composed operations.
void check_gradient() {
  Call call(2, 9, 9, 4);
  const auto gradient = [&](bool own) {
    call.table = call.table.detach().clone().requires_grad_();
    const auto y = own ? call.by_functions(true, true) : call.composed(true, true);
    if (y.requires_grad()) (y * call.v).sum().backward();
    return call.table.grad();
  };
  const auto got = gradient(true);
  want(got.defined(), 3, "no gradient flows to the table");
  want_close(got, gradient(false), 3, "the gradient of the table");
}

}  // namespace
}  // namespace exercises

EXERCISE(11) {
  using namespace exercises;
  const char* const score = "the score function does not add the number of the head and the distance";
  const char* const mask = "the mask function does not show the keys of the query's own document";
  check(Call(1, 6, 6, 6), true, false, 1, score);
  check(Call(3, 6, 6, 6), true, false, 1, score);
  check(Call(2, 11, 11, 3), true, false, 1, score);
  check(Call(2, 11, 11, 11), false, true, 2, mask);
  check(Call(2, 3, 11, 11), false, true, 2, mask);
  check(Call(2, 3, 11, 4), true, true, 2, "both functions together");
  check(Call(2, 300, 300, 40), true, true, 2, "both functions together");
  check_gradient();
}
