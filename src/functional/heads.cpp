#include <attentive/functional/heads.h>

#include "core/check.h"

namespace attentive {

at::Tensor split_heads(const at::Tensor& x, int64_t num_heads) {
  check_dense("split_heads", "x", x);
  TORCH_CHECK_VALUE(x.dim() == 3, "split_heads: expected x of shape (B, T, H * d), got ",
                    shape_string(x.sizes()));
  TORCH_CHECK_VALUE(num_heads > 0 && x.size(2) % num_heads == 0, "split_heads: expected num_heads to divide ",
                    x.size(2), ", got ", num_heads);
  return x.unflatten(2, {num_heads, x.size(2) / num_heads}).transpose(1, 2);
}

at::Tensor merge_heads(const at::Tensor& x) {
  check_dense("merge_heads", "x", x);
  TORCH_CHECK_VALUE(x.dim() == 4, "merge_heads: expected x of shape (B, H, T, d), got ",
                    shape_string(x.sizes()));
  return x.transpose(1, 2).flatten(2);
}

}  // namespace attentive
