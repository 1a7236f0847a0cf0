#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace attentive::test {

// One entry of tests/modules/data/goldens.json: what PyTorch computed from a seed.
class Golden {
 public:
  explicit Golden(const std::string& name);

  uint64_t seed() const { return seed_; }
  bool has(const std::string& name) const { return tensors_.count(name) != 0; }
  // float32; float64 for scalars, which hold sums.
  const at::Tensor& operator[](const std::string& name) const { return tensors_.at(name); }
  // What follows `prefix` in the names that start with it.
  std::vector<std::string> names(const std::string& prefix) const;

 private:
  uint64_t seed_;
  std::map<std::string, at::Tensor> tensors_;
};

}  // namespace attentive::test
