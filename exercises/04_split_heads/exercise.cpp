#include "task.h"

namespace exercises {

at::Tensor into_heads(const at::Tensor& x, int64_t heads) {
  const int64_t B = x.size(0), T = x.size(1), d = x.size(2) / heads;
  // THE GAP: the shape is right, the numbers are not.
  return x.reshape({B, heads, T, d});
}

at::Tensor from_heads(const at::Tensor& x) {
  const int64_t B = x.size(0), heads = x.size(1), T = x.size(2), d = x.size(3);
  return x.transpose(1, 2).reshape({B, T, heads * d});
}

}  // namespace exercises
