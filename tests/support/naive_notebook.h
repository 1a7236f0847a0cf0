#pragma once

#include <cmath>
#include <limits>

#include <ATen/core/Tensor.h>
#include <ATen/ops/softmax.h>

namespace attentive::test {

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
