#pragma once

// The places of a model at which adapters can be put, under the names of Python's modules.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

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
