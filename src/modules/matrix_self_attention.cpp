#include <ATen/ops/matmul.h>

#include <attentive/modules/matrix_self_attention.h>

#include "functional/problem_builder.h"
#include "modules/projection.h"

namespace attentive {
namespace {

constexpr const char* kWho = "MatrixSelfAttention";

}  // namespace

MatrixSelfAttentionImpl::MatrixSelfAttentionImpl(MatrixSelfAttentionOptions options_)
    : options(std::move(options_)) {
  build();
}

void MatrixSelfAttentionImpl::reset() {
  check_positive(kWho, "d_model", options.d_model());
  check_positive(kWho, "d_k", options.d_k());
  check_module_options(kWho, options.attention(), /*context_length=*/0);

  const auto draw = [&] { return draw_matrix(options.d_model(), options.d_k(), options.init()); };
  W_Q = register_parameter("W_Q", draw());
  W_K = register_parameter("W_K", draw());
  W_V = register_parameter("W_V", draw());
}

void MatrixSelfAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "attentive::MatrixSelfAttention(d_model=" << options.d_model() << ", d_k=" << options.d_k()
         << ", init=" << to_string(options.init()) << ")";
}

at::Tensor MatrixSelfAttentionImpl::forward(const at::Tensor& x, const Mask& mask) {
  return forward_with_weights(x, mask, Weights::None).first;
}

std::pair<at::Tensor, at::Tensor> MatrixSelfAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                                const Mask& mask,
                                                                                Weights which) {
  check_sequence(kWho, "x", x, options.d_model(), W_Q);
  const auto result = attend(options.attention(), 0.0, at::matmul(x, W_Q), at::matmul(x, W_K),
                             at::matmul(x, W_V), mask, which);
  return {result.output, result.weights};
}

}  // namespace attentive
