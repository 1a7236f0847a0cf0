#pragma once

#include <string>
#include <utility>
#include <vector>

#include <attentive/models/lora.h>

#include "models/adapter_sites.h"
#include "modules/low_rank_adapter.h"

namespace attentive {

struct Lora::State {
  struct Adapter {
    AdapterSite site;
    std::shared_ptr<LowRankAdapterImpl> module;
  };

  explicit State(LoraOptions options_) : options(std::move(options_)) {}

  LoraOptions options;
  std::shared_ptr<torch::nn::Module> model;  // null: not attached
  std::vector<Adapter> adapters;
  std::vector<std::pair<at::Tensor, bool>> required;     // the base's parameters before attach
  std::vector<std::pair<at::Tensor, at::Tensor>> saved;  // merged weights, and their former numbers
};

}  // namespace attentive
