// Examples of docs/guide/accelerate.md.

#include <ATen/ATen.h>

#include <attentive/accelerate.h>

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
