#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <torch/nn/module.h>

#include <attentive/compat/transformer_layers.h>
#include <attentive/core/options.h>
#include <attentive/parity/case.h>

#include "parity/case_arguments.h"

namespace attentive {

struct CaseOutput {
  at::Tensor output;
  at::Tensor weights = {};  // set if they were requested
};

/// A module or function built for one case, with a way to call it.
struct CaseRunner {
  std::shared_ptr<torch::nn::Module> module;  // null for a function
  std::function<CaseOutput(const CaseInputs& inputs, const CaseArguments& call, Weights which)> forward;
  std::string output_bias = {};          // the parameter that an output row without keys equals; empty: zeros
  bool sequence_first = false;           // a batched output is (L, N, E), while weights begin with N
  std::vector<std::string> normal = {};  // the parameters with normal initial values; all others are uniform
};

/// The mask as PyTorch would use it: autocast rounds a floating-point mask like every other argument.
at::Tensor torch_mask(const CaseInputs& inputs, const std::string& name);

/// One entry of the registry: a Python name and the arguments that it accepts.
struct CaseModule {
  std::string_view name;
  std::vector<std::string_view> options;
  std::vector<std::string_view> inputs;
  bool returns_weights = false;  // as Python's class does
  std::function<CaseRunner(const CaseArguments& options, Backend backend)> build;
  std::vector<std::string_view> call = {};
};

/// Builds the options of PyTorch's transformer layers from their Python names.
compat::TransformerLayerOptions torch_layer_options(const CaseArguments& options);
std::vector<std::string_view> torch_layer_option_names();

/// The registry entries of the notebooks' classes, PyTorch's attention, its transformer layers, stacks of
/// them, and whole models; and all entries together.
std::vector<CaseModule> notebook_case_modules();
std::vector<CaseModule> torch_case_modules();
std::vector<CaseModule> torch_layer_case_modules();
std::vector<CaseModule> torch_stack_case_modules();
std::vector<CaseModule> model_case_modules();
std::vector<CaseModule> encoder_case_modules();
const std::vector<CaseModule>& case_registry();

/// Finds the entry for the case's module. If a name stands for two classes, the options decide. Throws
/// CaseError for an unknown module, option, call argument or input.
const CaseModule& find_case_module(const Case& test_case, const CaseArguments& options,
                                   const CaseArguments& call);

}  // namespace attentive
