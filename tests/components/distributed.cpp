#include <attentive/distributed.h>

#include <torch/nn/modules/linear.h>

int main() {
  torch::nn::Linear layer(3, 2);
  attentive::DataParallel parallel(*layer, attentive::Group::join());
  return parallel.statistics().parameters == 0 ? 0 : 1;
}
