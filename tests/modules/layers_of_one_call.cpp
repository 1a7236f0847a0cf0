// Layers that are arguments of one call, compiled by the build's compiler, and by g++ for the same program.

#include <ATen/Context.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

namespace attentive::test {

at::Tensor ATTENTIVE_TEST_FUNCTION() {
  at::manual_seed(789);
  torch::nn::Sequential model(torch::nn::Linear(3, 2), torch::nn::Linear(2, 2));
  return model->at<torch::nn::LinearImpl>(0).weight.detach();
}

}  // namespace attentive::test
