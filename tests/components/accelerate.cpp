#include <ATen/ops/rand.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <attentive/accelerate.h>

int main() {
  attentive::accelerate_sdpa();
  const auto x = at::rand({1, 4, 512, 64});
  at::scaled_dot_product_attention(x, x, x);
  return attentive::sdpa_report().taken == 1 ? 0 : 1;
}
