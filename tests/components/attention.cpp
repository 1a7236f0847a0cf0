#include <ATen/ops/rand.h>

#include <attentive/attention.h>

int main() {
  const auto x = at::rand({2, 5, 8});
  attentive::MultiHeadAttention mha(8, 8, 5, 0.0, 2);
  return attentive::attention(x, x, x).sizes() == mha->forward(x).sizes() ? 0 : 1;
}
