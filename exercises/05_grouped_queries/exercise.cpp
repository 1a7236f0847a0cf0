#include "task.h"

namespace exercises {

at::Tensor grouped_weight(const at::Tensor& weight, int64_t heads, int64_t kv_heads) {
  const int64_t d = weight.size(0) / heads, d_in = weight.size(1);
  // THE GAP: this keeps the first heads and forgets the others.
  return weight.narrow(0, 0, kv_heads * d).view({kv_heads * d, d_in});
}

}  // namespace exercises
