#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace attentive::test {

/// One entry of tests/modules/data/goldens.json: numbers that PyTorch computed from a seed.
class Golden {
 public:
  explicit Golden(const std::string& name);

  uint64_t seed() const { return seed_; }
  bool has(const std::string& name) const { return tensors_.count(name) != 0; }
  /// The tensors are float32, or float64 for scalars, which hold sums.
  const at::Tensor& operator[](const std::string& name) const { return tensors_.at(name); }
  /// The names that start with `prefix`, without it.
  std::vector<std::string> names(const std::string& prefix) const;

 private:
  uint64_t seed_;
  std::map<std::string, at::Tensor> tensors_;
};

}  // namespace attentive::test
