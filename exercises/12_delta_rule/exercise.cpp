#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/stack.h>

#include "task.h"

namespace exercises {

std::pair<at::Tensor, at::Tensor> delta_rule(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const at::Tensor& /*gate*/, const at::Tensor& /*beta*/,
                                             at::Tensor state) {
  std::vector<at::Tensor> outputs;
  for (int64_t t = 0; t < q.size(0); ++t) {
    // THE GAP: this is linear attention, which only ever adds.
    state = state + at::outer(k[t], v[t]);
    outputs.push_back(at::matmul(q[t], state));
  }
  return {at::stack(outputs), state};
}

}  // namespace exercises
