#pragma once

// Cases of learned position biases and of the layers that add them, written by
// tools/generators/make_bias_cases.py from the classes of transformers.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>
#include <torch/nn/module.h>

#include <attentive/parity/case.h>

namespace attentive::test {

struct BiasCase {
  Case file;
  nlohmann::json options;
  at::ScalarType dtype;

  int64_t integer(const char* name) const { return options.at(name).get<int64_t>(); }
  double number(const char* name) const { return options.at(name).get<double>(); }
  bool flag(const char* name) const { return options.at(name).get<bool>(); }
};

/// The cases of one kind, such as "t5_bias", at least `least` of them: those of the bundle
/// tests/modules/data/biases.safetensors, or of the one that the environment variable ATTENTIVE_BIAS_CASES
/// names.
std::vector<BiasCase> bias_cases(const std::string& kind, size_t least);

using CaseTensors = std::map<std::string, at::Tensor>;

/// Loads the case's weights into the module by their names, all of them, runs `forward` with the case's
/// inputs, on the chosen backend and on the reference, and compares output and gradients. Parameters in
/// `without`, which the Python class lacks, are set to zero.
void check_bias_case(const BiasCase& bias_case, torch::nn::Module& module,
                     const std::function<at::Tensor(const CaseTensors& inputs)>& forward,
                     const std::vector<std::string>& without = {});

}  // namespace attentive::test
