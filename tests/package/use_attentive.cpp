// The program of each foreign project: one masked call of attention, whose numbers are checked.

#include <cstdio>

#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <attentive/core/mask.h>
#include <attentive/functional/attention.h>

int main() {
  const at::Tensor q = at::zeros({1, 2});  // equal scores: the mean of the visible values
  const at::Tensor k = at::ones({3, 2});
  const at::Tensor v = at::tensor({1.0F, 2.0F, 3.0F, 4.0F, 100.0F, 100.0F}).view({3, 2});
  const attentive::Mask mask = at::tensor({1, 1, 0}).view({1, 3}).to(at::kBool);
  const at::Tensor y = attentive::attention(q, k, v, {}, mask);
  const double first = y[0][0].item<double>();
  const double second = y[0][1].item<double>();
  std::printf("attention: %g %g\n", first, second);
  return first == 2.0 && second == 3.0 ? 0 : 1;
}
