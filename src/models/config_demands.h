#pragma once

// Compares the sizes in a config.json with the folder's weights, before anything is built from them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <attentive/models/model_folder.h>
#include <attentive/models/pretrained.h>

#include "models/model_config.h"

namespace attentive {

/// A lower bound of a model's parameters, as a product of fields of config.json.
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

/// Throws c10::ValueError "<caller>: fields ...: expected ..., got ..." if a demand exceeds the number of
/// elements in all tensors together. A product that overflows exceeds every number.
void check_demands(const std::string& caller, const std::vector<Demand>& demands, const StateDict& weights);

/// Throws if the number of layers exceeds the number of tensors, provided that weights were read.
void check_layers(const ModelConfig& config, std::string_view field, const StateDict& weights);

}  // namespace attentive
