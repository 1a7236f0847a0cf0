#pragma once

// The places of a model at which adapters can be put, under the names of Python's modules.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/files/state_dict.h>
#include <attentive/models/lora.h>

#include "modules/low_rank_adapter.h"

namespace attentive {

/// A linear layer of Python's model: one of ours, several (GPT-2's c_attn), or some rows of one (the queries
/// of a vision transformer).
struct AdapterSite {
  struct Rows {
    at::Tensor weight;
    int64_t first, first_of_b, count;
  };
  std::string name;                          ///< the module in Python, such as "transformer.h.0.attn.c_attn"
  std::shared_ptr<torch::nn::Module> owner;  ///< the module that gets the adapter as a child
  std::string child;                         ///< under this name
  std::vector<Rows> rows = {};
  int64_t features = 0, outputs = 0;
  bool own = true;  ///< whether a module of this package computes the layer
};

/// The linear layers of a model in the order of its modules, without the heads of language models, which may
/// be tied. Names are those of the modules of transformers 5; layers of a module that is no model of a family
/// have the names of their modules.
std::vector<AdapterSite> adapter_sites(const std::shared_ptr<torch::nn::Module>& model);

/// The name of a layer in a file of another version of transformers, or without its prefix, as
/// `adapter_sites` has it; empty if the family has no such layer.
std::string site_name(const torch::nn::Module& model, std::string_view python_name);

/// A parameter of a model, and its names in Python, those of transformers 5: several if it joins some.
struct PythonParameter {
  std::string name;
  at::Tensor tensor;
  std::vector<std::string> python_names = {};
};

std::vector<PythonParameter> python_parameters(const torch::nn::Module& model);

/// The name of a parameter in a file, as `python_parameters` has it; empty if the family has none.
std::string parameter_name(const torch::nn::Module& model, std::string_view python_name);

/// Some parameters under the names of `python_parameters`, in Python's layout, and back.
StateDict to_python_parameters(const torch::nn::Module& model, const StateDict& own);
StateDict from_python_parameters(const torch::nn::Module& model, const StateDict& python);

/// Whether a parameter belongs to one of the modules, as peft finds them: by the ends of names.
bool belongs_to(std::string_view parameter, const std::vector<std::string>& modules);

/// Whether the model's embedding is the weight of its head, too, which Python's peft would separate.
bool ties_embedding(const torch::nn::Module& model);

/// A key of peft's patterns: whether it matches a layer's name.
using LayerPattern = std::function<bool(const std::string& name)>;

/// Throws c10::ValueError naming a key that is no regular expression, or may cost much time.
std::vector<LayerPattern> layer_patterns(const std::vector<std::string>& keys);

/// The values of peft's rank_pattern or alpha_pattern: the first key that matches counts.
template <class Value>
class LayerValues {
 public:
  LayerValues(const std::vector<std::pair<std::string, Value>>& pairs, Value otherwise)
      : otherwise_(otherwise) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : pairs) {
      keys.push_back(key);
      values_.push_back(value);
    }
    patterns_ = layer_patterns(keys);
  }

  Value of(const std::string& name) const {
    for (size_t i = 0; i < values_.size(); ++i) {
      if (patterns_[i](name)) return values_[i];
    }
    return otherwise_;
  }

 private:
  std::vector<LayerPattern> patterns_;
  std::vector<Value> values_;
  Value otherwise_;
};

/// Adds the key of one layer, unless its value is the general one.
template <class Value>
void put_layer_value(std::vector<std::pair<std::string, Value>>& pairs, const std::string& name, Value value,
                     Value otherwise) {
  if (value != otherwise) pairs.emplace_back('^' + name, value);
}

struct Lora::State {
  struct Adapter {
    AdapterSite site;
    std::shared_ptr<LowRankAdapterImpl> module;
  };

  explicit State(LoraOptions options_) : options(std::move(options_)) {}

  LoraOptions options;
  std::shared_ptr<torch::nn::Module> model;  // null: not attached
  std::vector<Adapter> adapters;
  std::vector<PythonParameter> whole;                       // of modules_to_save
  std::vector<std::pair<at::Tensor, bool>> required;        // the base's parameters before attach
  std::vector<std::pair<at::Tensor, at::Tensor>> saved;     // merged weights, and their former numbers
  std::vector<std::pair<at::Tensor, at::Tensor>> replaced;  // by a folder's modules, and their former numbers
};

}  // namespace attentive
