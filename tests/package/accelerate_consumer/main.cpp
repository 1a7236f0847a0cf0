// A user's program that was written for PyTorch alone, but for one line.

#include <cstdio>

#include <ATen/ops/rand.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <attentive/accelerate.h>

int main() {
  attentive::accelerate_sdpa();
  const auto x = at::rand({1, 4, 512, 64});
  at::scaled_dot_product_attention(x, x, x, {}, /*dropout_p=*/0.0, /*is_causal=*/true);
  const auto report = attentive::sdpa_report();
  std::printf("%s", attentive::to_string(report).c_str());
  return report.taken == 1 ? 0 : 1;
}
