#include <attentive/modules/scaled_dot_product_attention.h>

#include "core/check.h"
#include "functional/problem_builder.h"
#include "modules/projection.h"

namespace attentive {
namespace {

constexpr const char* kWho = "ScaledDotProductAttention";

}  // namespace

ScaledDotProductAttentionImpl::ScaledDotProductAttentionImpl(ScaledDotProductAttentionOptions options_)
    : options(std::move(options_)) {
  build();
}

void ScaledDotProductAttentionImpl::reset() {
  check_probability(kWho, "dropout", options.dropout());
  check_module_options(kWho, options.attention(), /*context_length=*/0);
}

void ScaledDotProductAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "attentive::ScaledDotProductAttention(dropout=" << options.dropout() << ")";
}

std::pair<at::Tensor, at::Tensor> ScaledDotProductAttentionImpl::forward(const at::Tensor& Q,
                                                                         const at::Tensor& K,
                                                                         const at::Tensor& V,
                                                                         const Mask& mask) {
  return forward_with_weights(Q, K, V, mask, Weights::Dropped);
}

std::pair<at::Tensor, at::Tensor> ScaledDotProductAttentionImpl::forward_with_weights(
    const at::Tensor& Q, const at::Tensor& K, const at::Tensor& V, const Mask& mask, Weights which) {
  const auto result =
      attend(options.attention(), is_training() ? options.dropout() : 0.0, Q, K, V, mask, which);
  return {result.output, result.weights};
}

}  // namespace attentive
