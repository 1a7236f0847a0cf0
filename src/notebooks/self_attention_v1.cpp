#include <ATen/ops/matmul.h>

#include <attentive/notebooks/self_attention_v1.h>

#include "modules/attend.h"
#include "modules/checks.h"

namespace attentive {

SelfAttentionV1Impl::SelfAttentionV1Impl(SelfAttentionV1Options options_) : options(std::move(options_)) {
  build();
}

void SelfAttentionV1Impl::reset() {
  check_positive(kName, "d_in", options.d_in());
  check_positive(kName, "d_out", options.d_out());
  check_attention_options(kName, options);

  const auto draw = [&] { return draw_matrix(options.d_in(), options.d_out(), options.init()); };
  W_query = register_parameter("W_query", draw());
  W_key = register_parameter("W_key", draw());
  W_value = register_parameter("W_value", draw());
}

at::Tensor SelfAttentionV1Impl::forward(const at::Tensor& x, const Mask& mask) {
  return forward_with_weights(x, mask, Weights::None).first;
}

std::pair<at::Tensor, at::Tensor> SelfAttentionV1Impl::forward_with_weights(const at::Tensor& x,
                                                                            const Mask& mask, Weights which) {
  check_sequence(kName, "x", x, options.d_in(), W_query);
  return attend(*this, at::matmul(x, W_query), at::matmul(x, W_key), at::matmul(x, W_value), mask, which);
}

}  // namespace attentive
