#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

#include "task.h"

using attentive::Mask;

namespace exercises {
namespace {

// True where a token is padding, as `key_padding_mask` of torch.nn.MultiheadAttention.
at::Tensor padding(const at::Tensor& lengths, int64_t T) {
  return at::arange(T).ge(lengths.unsqueeze(1));
}

// True above the diagonal, as `attn_mask` of torch.nn.MultiheadAttention.
at::Tensor later(int64_t T) {
  return at::ones({T, T}, at::kBool).triu(1);
}

// True where two tokens belong to the same document.
at::Tensor same_document(const at::Tensor& documents) {
  return documents.unsqueeze(1).eq(documents);
}

}  // namespace

Mask training_mask(const at::Tensor& lengths, const at::Tensor& documents) {
  const int64_t T = documents.size(0);
  // THE GAP: one of these three is wrong.
  return Mask::key_keep(padding(lengths, T).bitwise_not()) & Mask::keep(later(T)) &
         Mask::keep(same_document(documents));
}

}  // namespace exercises
