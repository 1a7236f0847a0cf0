#pragma once

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/softmax.h>

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

struct Naive {
  at::Tensor output, weights;
};

/// Attention as the notebooks write it; a zero in `keep` hides the pair.
inline Naive naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const at::Tensor& keep = {}) {
  auto scores = q.matmul(k.transpose(-2, -1)) / std::sqrt(static_cast<double>(q.size(-1)));
  if (keep.defined()) scores = scores.masked_fill(keep.eq(0), -std::numeric_limits<double>::infinity());
  const auto weights = at::softmax(scores, -1);
  return {weights.matmul(v), weights};
}

}  // namespace attentive::test
