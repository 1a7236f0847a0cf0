#include <torch/nn/modules/linear.h>

#include <attentive/files.h>

int main() {
  torch::nn::Linear layer(3, 2);
  attentive::save_torch("component_files.pt", attentive::state_dict(*layer));
  return attentive::load_state_dict(*layer, attentive::read_state_dict("component_files.pt")).empty() ? 0 : 1;
}
