// Examples of docs/guide/accelerate.md.

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/optim/sgd.h>

#include <attentive/accelerate.h>
#include <attentive/compat/from.h>

#include "docs/examples.h"

using namespace attentive;

namespace {

// No other example accelerates, and each of these counts its calls alone.
void prepare() {
  reset_sdpa_report();
}

}  // namespace

EXAMPLE_AFTER(accelerate_one_line, prepare) {
  accelerate_sdpa();  // once, at the start of the program

  const auto q = at::rand({1, 8, 512, 64}).requires_grad_(), k = at::rand({1, 8, 512, 64}),
             v = at::rand({1, 8, 512, 64});
  const auto y = at::scaled_dot_product_attention(q, k, v, {}, /*dropout_p=*/0.1, /*is_causal=*/true);
  y.sum().backward();
  std::cout << y.sizes() << ", gradient " << q.grad().sizes() << "\n" << to_string(sdpa_report());
  stop_accelerating_sdpa();  // if something later needs PyTorch's kernels
}

EXAMPLE(accelerate_modules) {
  torch::nn::MultiheadAttention theirs(torch::nn::MultiheadAttentionOptions(64, 4).dropout(0.1));
  torch::optim::SGD optimizer(theirs->parameters(), torch::optim::SGDOptions(0.1));

  auto ours = compat::from(theirs);  // the line to add

  const auto x = at::rand({512, 1, 64});
  const auto y = std::get<0>(ours->forward(x, x, x, {}, /*need_weights=*/false));
  y.square().mean().backward();
  optimizer.step();  // of both
  ours->eval();
  theirs->eval();
  const auto want = std::get<0>(theirs->forward(x, x, x, {}, /*need_weights=*/false));
  const auto got = std::get<0>(ours->forward(x, x, x, {}, /*need_weights=*/false));
  std::cout << "the same: " << got.allclose(want, 1e-5, 1e-6) << "\n";
}

EXAMPLE_AFTER(accelerate_exact_dropout, prepare) {
  const SdpaGuard exact({.dropout = SdpaDropout::Exact});  // accelerate_sdpa takes the same options
  const auto x = at::rand({1, 8, 512, 64});
  at::scaled_dot_product_attention(x, x, x);
  at::scaled_dot_product_attention(x, x, x, {}, /*dropout_p=*/0.1);
  std::cout << to_string(sdpa_report());
}

EXAMPLE_AFTER(accelerate_report, prepare) {
  const SdpaGuard guard;
  const auto x = at::rand({1, 8, 512, 64});
  for (int n = 0; n < 3; ++n) at::scaled_dot_product_attention(x, x, x);
  const auto wide = x.to(at::kDouble);
  at::scaled_dot_product_attention(wide, wide, wide);
  std::cout << to_string(sdpa_report());
}
