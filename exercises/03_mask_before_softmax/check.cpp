#include <ATen/ops/eye.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>

#include <attentive/functional/attention.h>

#include "support/exercise.h"
#include "task.h"

namespace exercises {
namespace {

// With the identity matrix as keys, the rows of q are the scores.
at::Tensor expected_of(const at::Tensor& scores) {
  const auto eye = at::eye(scores.size(0));
  const attentive::AttentionOptions options{
      .scale = 1.0, .causal = attentive::Causal::BottomRight, .backend = attentive::Backend::Reference};
  return attentive::attention(scores, eye, eye, options, {.weights = attentive::Weights::Clean}).weights;
}

void check(const at::Tensor& scores) {
  const auto T = with("T", scores.size(0));
  const auto weights = causal_weights(scores);
  const auto rows = weights.sum(-1);
  want_close(rows, at::ones_like(rows), 1, "the weights of a query do not add up to 1 (" + T + ")");
  want_close(weights.triu(1), weights.triu(1).zero_(), 2, "a query gives weight to a later key (" + T + ")");
  want_close(weights, expected_of(scores), 2,
             "the weights are not the softmax of the visible scores (" + T + ")");
}

void check_extremes() {
  auto scores = at::randn({4, 4});
  scores[0][3] = 200.0f;  // the score of a key that query 0 may not see
  want_close(causal_weights(scores), expected_of(scores), 3,
             "a large score of a hidden key reaches the weights (its exponential is far above all others)");
  scores[0][0] = -1e12f;
  want_close(causal_weights(scores), expected_of(scores), 3,
             "a very low score of a visible key loses to the number that stands for \"hidden\"");
}

}  // namespace
}  // namespace exercises

EXERCISE(3) {
  for (const int64_t T : {6, 3, 1}) exercises::check(at::randn({T, T}));
  exercises::check_extremes();
}
