#include "modules/projection.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/linear.h>

#include "core/check.h"

namespace attentive {

at::Tensor project(const torch::nn::Linear& layer, const at::Tensor& x) {
  return at::linear(x, layer->weight, layer->bias);
}

void check_sequence(const char* who, const char* name, const at::Tensor& x, int64_t features,
                    const at::Tensor& parameter) {
  check_defined(who, name, x);
  TORCH_CHECK_VALUE((x.dim() == 2 || x.dim() == 3) && x.size(-1) == features, who, ": expected ", name,
                    " of shape (B, T, ", features, ") or (T, ", features, "), got ", shape_string(x.sizes()));
  TORCH_CHECK_VALUE(x.device() == parameter.device(), who, ": expected ", name, " on ", parameter.device(),
                    " like the parameters, got it on ", x.device());
  // Autocast casts later; it knows no other device than these two (and throws for them).
  const bool autocast = (x.is_cpu() || x.is_cuda()) && at::autocast::is_autocast_enabled(x.device().type());
  TORCH_CHECK_TYPE(autocast || x.scalar_type() == parameter.scalar_type(), who, ": expected ", name,
                   " of dtype ", parameter.scalar_type(), " like the parameters, got ", x.scalar_type());
}

void check_context(const char* who, int64_t tokens, int64_t context_length) {
  TORCH_CHECK_VALUE(context_length == 0 || tokens <= context_length, who,
                    ": expected at most context_length = ", context_length, " tokens, got ", tokens);
}

void check_positive(const char* who, const char* name, int64_t value) {
  TORCH_CHECK_VALUE(value > 0, who, ": expected ", name, " > 0, got ", value);
}

void check_heads(const char* who, const char* name, int64_t features, int64_t num_heads) {
  check_positive(who, "num_heads", num_heads);
  TORCH_CHECK_VALUE(features % num_heads == 0, who, ": expected num_heads to divide ", name, " = ", features,
                    ", got ", num_heads);
}

}  // namespace attentive
