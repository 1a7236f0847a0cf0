#include <ATen/ops/matmul.h>

#include <attentive/modules/self_attention_v1.h>

#include "functional/problem_builder.h"
#include "modules/projection.h"

namespace attentive {
namespace {

constexpr const char* kWho = "SelfAttentionV1";

}  // namespace

SelfAttentionV1Impl::SelfAttentionV1Impl(SelfAttentionV1Options options_) : options(std::move(options_)) {
  build();
}

void SelfAttentionV1Impl::reset() {
  check_positive(kWho, "d_in", options.d_in());
  check_positive(kWho, "d_out", options.d_out());
  check_module_options(kWho, options.attention(), /*context_length=*/0);

  const auto draw = [&] { return draw_matrix(options.d_in(), options.d_out(), options.init()); };
  W_query = register_parameter("W_query", draw());
  W_key = register_parameter("W_key", draw());
  W_value = register_parameter("W_value", draw());
}

void SelfAttentionV1Impl::pretty_print(std::ostream& stream) const {
  stream << "attentive::SelfAttentionV1(d_in=" << options.d_in() << ", d_out=" << options.d_out()
         << ", init=" << to_string(options.init()) << ")";
}

at::Tensor SelfAttentionV1Impl::forward(const at::Tensor& x, const Mask& mask) {
  return forward_with_weights(x, mask, Weights::None).first;
}

std::pair<at::Tensor, at::Tensor> SelfAttentionV1Impl::forward_with_weights(const at::Tensor& x,
                                                                            const Mask& mask, Weights which) {
  check_sequence(kWho, "x", x, options.d_in(), W_query);
  const auto result = attend(options.attention(), 0.0, at::matmul(x, W_query), at::matmul(x, W_key),
                             at::matmul(x, W_value), mask, which);
  return {result.output, result.weights};
}

}  // namespace attentive
