#include <attentive/notebooks/scaled_dot_product_attention.h>

#include "modules/attend.h"

namespace attentive {

ScaledDotProductAttentionImpl::ScaledDotProductAttentionImpl(ScaledDotProductAttentionOptions options_)
    : options(std::move(options_)) {
  build();
}

void ScaledDotProductAttentionImpl::reset() {
  check_attention_options(kName, options);
}

std::pair<at::Tensor, at::Tensor> ScaledDotProductAttentionImpl::forward(const at::Tensor& Q,
                                                                         const at::Tensor& K,
                                                                         const at::Tensor& V,
                                                                         const Mask& mask) {
  return forward_with_weights(Q, K, V, mask, Weights::Dropped);
}

std::pair<at::Tensor, at::Tensor> ScaledDotProductAttentionImpl::forward_with_weights(
    const at::Tensor& Q, const at::Tensor& K, const at::Tensor& V, const Mask& mask, Weights which) {
  return attend(*this, Q, K, V, mask, which);
}

}  // namespace attentive
