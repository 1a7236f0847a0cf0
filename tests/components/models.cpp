#include <ATen/ops/zeros.h>

#include <attentive/models.h>

int main() {
  attentive::GPT model(attentive::GPTOptions(7, 4, 8, 2, 1));
  return model->forward(at::zeros({1, 4}, at::kLong)).size(2) == 7 ? 0 : 1;
}
