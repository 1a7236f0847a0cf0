#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>

#include <attentive/parity/compare.h>

#include "support/exercise.h"
#include "task.h"

namespace exercises {
namespace {

at::Tensor some_weights(int64_t T) {
  return at::softmax(at::rand({2, T, T}), -1);
}

void check_evaluation() {
  for (const double p : {0.5, 1.0, 0.0}) {
    const auto weights = some_weights(8);
    want(attentive::bit_equal(drop_weights(weights, p, false), weights), 1,
         "weights are dropped outside training");
  }
}

void check_scale(double p) {
  const auto weights = some_weights(8);
  const auto got = drop_weights(weights, p, true);
  const auto survives = got.ne(0);
  want_close(got, weights * survives / (1.0 - p), 2,
             "the surviving weights do not make up for the dropped ones");
}

void check_ends() {
  const auto weights = some_weights(4);
  want_close(drop_weights(weights, 0.0, true), weights, 3, "p = 0 does not leave the weights alone");
  want_close(drop_weights(weights, 1.0, true), at::zeros_like(weights), 3,
             "p = 1 does not drop every weight");
}

// Checks the draws: of 40,000, the share that is dropped is within six standard deviations of p.
void check_draws(double p) {
  const auto weights = at::ones({200, 200});
  const auto dropped = drop_weights(weights, p, true).eq(0).to(at::kDouble);
  const double allowed = 6.0 * std::sqrt(p * (1.0 - p) / 40000.0);
  want(std::abs(dropped.mean().item<double>() - p) < allowed, 3, "another share than p is dropped");
  for (int64_t dim : {0, 1}) {
    const auto shares = dropped.mean(dim);
    want(shares.max().item<double>() < 1.0 && shares.min().item<double>() > 0.0, 3,
         "whole rows or columns are dropped, where each weight should be on its own");
  }
  const auto again = drop_weights(weights, p, true).eq(0).to(at::kDouble);
  want(!attentive::bit_equal(dropped, again), 3, "the same weights are dropped in every call");
}

void check_gradient() {
  auto weights = at::rand({6, 6}).add(0.5).requires_grad_(true);
  const auto got = drop_weights(weights, 0.25, true);
  got.sum().backward();
  want_close(weights.grad(), got.detach().ne(0).to(at::kFloat) / 0.75, 2,
             "the gradient of the weights is not the scale of the survivors");
}

}  // namespace
}  // namespace exercises

EXERCISE(9) {
  exercises::check_evaluation();
  exercises::check_scale(0.5);
  exercises::check_scale(0.1);
  exercises::check_ends();
  exercises::check_draws(0.25);
  exercises::check_draws(0.6);
  exercises::check_gradient();
}
