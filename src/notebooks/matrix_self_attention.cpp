#include <ATen/ops/matmul.h>

#include <attentive/notebooks/matrix_self_attention.h>

#include "modules/attend.h"
#include "modules/checks.h"

namespace attentive {

MatrixSelfAttentionImpl::MatrixSelfAttentionImpl(MatrixSelfAttentionOptions options_)
    : options(std::move(options_)) {
  build();
}

void MatrixSelfAttentionImpl::reset() {
  check_positive(kName, "d_model", options.d_model());
  check_positive(kName, "d_k", options.d_k());
  check_attention_options(kName, options);

  const auto draw = [&] { return draw_matrix(options.d_model(), options.d_k(), options.init()); };
  W_Q = register_parameter("W_Q", draw());
  W_K = register_parameter("W_K", draw());
  W_V = register_parameter("W_V", draw());
}

at::Tensor MatrixSelfAttentionImpl::forward(const at::Tensor& x, const Mask& mask) {
  return forward_with_weights(x, mask, Weights::None).first;
}

std::pair<at::Tensor, at::Tensor> MatrixSelfAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                                const Mask& mask,
                                                                                Weights which) {
  check_sequence(kName, "x", x, options.d_model(), W_Q);
  return attend(*this, at::matmul(x, W_Q), at::matmul(x, W_K), at::matmul(x, W_V), mask, which);
}

}  // namespace attentive
