#pragma once

// What a config.json asks for, against what the folder's weights hold: before anything is built of it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <attentive/models/model_folder.h>
#include <attentive/models/pretrained.h>

#include "models/model_config.h"

namespace attentive {

/// Numbers that a model needs at least for some of its matrices: the product of fields of config.json.
struct Demand {
  struct Factor {
    std::string_view field;
    int64_t value;
  };
  std::vector<Factor> factors;
};

std::vector<Demand> demands_of(const GPTOptions& options);
std::vector<Demand> demands_of(const LlamaOptions& options);
std::vector<Demand> demands_of(const BertOptions& options);
std::vector<Demand> demands_of(const ViTOptions& options);

/// Throws c10::ValueError "<who>: fields ...: expected ..., got ..." for a demand of more numbers than all
/// tensors hold together. Products that overflow are larger than anything.
void check_demands(const std::string& who, const std::vector<Demand>& demands, const StateDict& weights);

/// Refuses a number of layers larger than that of the tensors, if weights were read.
void check_layers(const ModelConfig& config, std::string_view field, const StateDict& weights);

}  // namespace attentive
