#include "kernels/grouped_products.h"

namespace attentive::kernels {

at::Tensor stack_groups(const at::Tensor& x, int64_t kv_heads) {
  if (x.size(1) == kv_heads) return x;
  return x.reshape({x.size(0), kv_heads, x.size(1) / kv_heads * x.size(2), x.size(3)});
}

at::Tensor unstack_groups(const at::Tensor& x, int64_t heads) {
  if (x.size(1) == heads) return x;
  return x.reshape({x.size(0), heads, x.size(1) * x.size(2) / heads, x.size(3)});
}

at::Tensor without_unseen(const at::Tensor& rows, const at::Tensor& visible, int64_t kv_heads) {
  auto seen = visible.any(2);  // (B or 1, H or 1, S or 1)
  if (seen.size(1) > kv_heads) {
    seen = seen.reshape({seen.size(0), kv_heads, seen.size(1) / kv_heads, seen.size(2)}).any(2);
  }
  return rows.masked_fill(seen.bitwise_not().unsqueeze(3), 0.0);
}

}  // namespace attentive::kernels
