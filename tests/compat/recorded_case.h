#pragma once

// A parity case that real PyTorch wrote (tests/parity/README.md): what a test needs to repeat and compare it.

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <torch/nn/module.h>

#include <attentive/io/safetensors.h>
#include <attentive/io/state_dict.h>

namespace attentive::test {

struct RecordedCase {
  explicit RecordedCase(const std::string& path);

  // Undefined if the case has none of that name.
  at::Tensor tensor(const std::string& name) const;
  at::ScalarType type() const { return state.begin()->second.scalar_type(); }
  bool train() const { return file.metadata.count("train") == 0 || file.metadata.at("train") == "true"; }
  // The seed under that metadata key, or -1.
  int64_t seed(const std::string& key) const;

  SafetensorsFile file;
  nlohmann::json options, call;
  StateDict state;
};

// Files that match a pattern below tests/, sorted.
std::vector<std::string> case_files(const std::string& pattern);

template <class T>
T value_or(const nlohmann::json& object, const char* key, T otherwise) {
  return object.contains(key) && !object[key].is_null() ? object[key].get<T>() : otherwise;
}

// Inputs of a case as leaves that collect gradients.
class Leaves {
 public:
  explicit Leaves(const RecordedCase& recorded) : case_(recorded) {}
  // The input of that name, or `otherwise` if the case has none.
  at::Tensor operator()(const std::string& name, const at::Tensor& otherwise = {});

 private:
  friend std::string compare(const RecordedCase&, const torch::nn::Module&, const Leaves&, const at::Tensor&,
                             const at::Tensor&);
  const RecordedCase& case_;
  std::map<std::string, at::Tensor> leaves_;
};

// Compares `module`'s fresh parameters with those of the case, if it states their seed. Empty if equal.
std::string compare_initial(const RecordedCase& recorded, const torch::nn::Module& module);

// Compares output and weights, runs the backward and compares every gradient. Empty, or what differs. A NaN
// that PyTorch gives for a query without keys is not compared, but ours must be finite there.
std::string compare(const RecordedCase& recorded, const torch::nn::Module& module, const Leaves& leaves,
                    const at::Tensor& output, const at::Tensor& weights = {});

}  // namespace attentive::test
