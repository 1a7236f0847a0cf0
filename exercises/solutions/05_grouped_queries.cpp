#include "05_grouped_queries/task.h"

namespace exercises {

at::Tensor grouped_weight(const at::Tensor& weight, int64_t heads, int64_t kv_heads) {
  const int64_t d = weight.size(0) / heads, d_in = weight.size(1);
  return weight.view({kv_heads, heads / kv_heads, d, d_in}).mean(1).view({kv_heads * d, d_in});
}

}  // namespace exercises
