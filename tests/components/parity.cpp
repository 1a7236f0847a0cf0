#include <ATen/ops/ones.h>

#include <attentive/parity.h>

int main() {
  return attentive::difference(at::ones({2}), at::ones({2})).empty() ? 0 : 1;
}
