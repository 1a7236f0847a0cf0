#include <torch/nn/modules/linear.h>

#include <attentive/distributed.h>

int main() {
  torch::nn::Linear layer(3, 2);
  attentive::DataParallel parallel(*layer, attentive::Group::join());
  return parallel.statistics().parameters == 0 ? 0 : 1;
}
