// ALiBi with slopes that learn, in documents, as the guide writes it: compared with the same attention in
// single operations of PyTorch, forward and backward.

#include <cmath>
#include <cstdio>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>

#include <attentive/functional/attention.h>
#include <attentive/score/score_mod.h>

namespace {

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace

int main() {
  at::manual_seed(1);
  const at::Tensor q = at::randn({2, 4, 300, 32}), k = at::randn({2, 4, 300, 32}),
                   v = at::randn({2, 4, 300, 32});
  const at::Tensor document = at::arange(300).div(100, "floor");
  const at::Tensor slopes = at::rand({4}).requires_grad_(),
                   same_slopes = slopes.detach().clone().requires_grad_();

  const auto slope = attentive::captured(slopes);
  const auto number = attentive::captured_indices(document);
  const auto score =
      attentive::score_mod([=](auto s, auto pair) { return s + slope(pair.head) * (pair.key - pair.query); });
  const auto mask = attentive::mask_mod([=](auto pair) { return number(pair.query) == number(pair.key); });
  const auto blocks =
      attentive::BlockMask::kept(mask, /*batch=*/1, /*heads=*/1, /*queries=*/300, /*keys=*/300);
  const at::Tensor y = attentive::attention(q, k, v, {.causal = attentive::Causal::BottomRight},
                                            {.score = score, .block_mask = blocks})
                           .output;
  y.square().sum().backward();

  const at::Tensor key = at::arange(300), query = key.unsqueeze(1);
  const at::Tensor hidden = key.gt(query).logical_or(document.unsqueeze(1).ne(document));
  const at::Tensor scores =
      at::matmul(q, k.transpose(-2, -1)) / std::sqrt(32.0) + same_slopes.view({4, 1, 1}) * (key - query);
  const at::Tensor composed = at::matmul(at::softmax(scores.masked_fill(hidden, -INFINITY), -1), v);
  composed.square().sum().backward();

  const double output = difference(y, composed);
  const double gradient =
      difference(slopes.grad(), same_slopes.grad()) / same_slopes.grad().abs().max().item<double>();
  std::printf("differences: output %.1e, gradient of the slopes %.1e of the largest\n", output, gradient);
  return output < 1e-5 && gradient < 1e-4 ? 0 : 1;
}
