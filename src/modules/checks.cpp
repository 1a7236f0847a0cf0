#include "modules/checks.h"

#include <cmath>

#include <ATen/ops/aminmax.h>

#include "core/autocast_modes.h"

namespace attentive {

void check_positive(const char* caller, const char* name, int64_t value) {
  TORCH_CHECK_VALUE(value > 0, caller, ": expected ", name, " > 0, got ", value);
  TORCH_CHECK_VALUE(value <= int64_t{1} << 48, caller, ": expected ", name, " of at most 2^48, got ", value);
}

void check_length(const char* caller, const char* name, int64_t value) {
  TORCH_CHECK_VALUE(value >= 0, caller, ": expected ", name, " >= 0, got ", value);
  TORCH_CHECK_VALUE(value <= int64_t{1} << 48, caller, ": expected ", name, " of at most 2^48, got ", value);
}

void check_count(const char* caller, const char* name, int64_t value) {
  constexpr int64_t most = int64_t{1} << 20;
  TORCH_CHECK_VALUE(value > 0 && value <= most, caller, ": expected ", name, " in [1, ", most, "], got ",
                    value);
}

void check_heads(const char* caller, const char* name, int64_t features, int64_t heads,
                 const char* heads_name) {
  check_positive(caller, heads_name, heads);
  TORCH_CHECK_VALUE(features % heads == 0, caller, ": expected ", heads_name, " to divide ", name, " = ",
                    features, ", got ", heads);
}

void check_eps(const char* caller, double eps) {
  TORCH_CHECK_VALUE(std::isfinite(eps) && eps >= 0.0, caller,
                    ": expected eps to be finite and not negative, got ", eps);
}

void check_dtype(const char* caller, const char* name, const at::Tensor& x, const at::Tensor& parameter) {
  // Autocast casts x itself.
  TORCH_CHECK_TYPE(is_autocast(x.device()) || x.scalar_type() == parameter.scalar_type(), caller,
                   ": expected ", name, " of dtype ", parameter.scalar_type(), " like the parameters, got ",
                   x.scalar_type());
}

void check_sequence(const char* caller, const char* name, const at::Tensor& x, int64_t features,
                    const at::Tensor& parameter) {
  check_defined(caller, name, x);
  TORCH_CHECK_VALUE((x.dim() == 2 || x.dim() == 3) && x.size(-1) == features, caller, ": expected ", name,
                    " of shape (B, T, ", features, ") or (T, ", features, "), got ", shape_string(x.sizes()));
  check_device(caller, name, x, parameter);
  check_dtype(caller, name, x, parameter);
}

void check_norm_input(const char* caller, const at::Tensor& x, int64_t features,
                      const at::Tensor& parameter) {
  check_floating(caller, "x", x);
  TORCH_CHECK_VALUE(x.dim() > 0 && x.size(-1) == features, caller, ": expected x of shape (..., ", features,
                    "), got ", shape_string(x.sizes()));
  check_device(caller, "x", x, parameter);
  const auto type = x.scalar_type();
  const bool half = type == at::kBFloat16 || type == at::kHalf;
  TORCH_CHECK_TYPE(type == parameter.scalar_type() || (half && parameter.scalar_type() == at::kFloat) ||
                       (x.is_cuda() && is_autocast(x.device())),
                   caller, ": expected x of dtype ", parameter.scalar_type(), " like the parameters, got ",
                   type);
}

void check_same_batch(const char* caller, const char* name, const at::Tensor& x, const char* other_name,
                      const at::Tensor& other) {
  TORCH_CHECK_VALUE(x.dim() == other.dim() && (x.dim() == 2 || x.size(0) == other.size(0)), caller,
                    ": expected ", name, " of the batch size of ", other_name, ", got ", name, " ",
                    shape_string(x.sizes()), ", ", other_name, " ", shape_string(other.sizes()));
}

void check_tokens(const char* caller, const char* name, const at::Tensor& tokens) {
  check_defined(caller, name, tokens);
  const auto dtype = tokens.scalar_type();
  TORCH_CHECK_VALUE(tokens.dim() == 2 && (dtype == at::kLong || dtype == at::kInt), caller, ": expected ",
                    name, " as int64 or int32 of shape (B, T), got ", describe(tokens));
}

void check_indices(const char* caller, const char* name, const at::Tensor& indices, int64_t rows) {
  if (indices.numel() == 0 || indices.is_meta()) return;
  const auto [low, high] = at::aminmax(indices);
  const auto least = low.item<int64_t>(), most = high.item<int64_t>();
  TORCH_CHECK_VALUE(least >= 0 && most < rows, caller, ": expected ", name, " in [0, ", rows, "), got ",
                    least < 0 ? least : most);
}

void check_context(const char* caller, int64_t tokens, int64_t context_length) {
  TORCH_CHECK_VALUE(context_length == 0 || tokens <= context_length, caller,
                    ": expected at most context_length = ", context_length, " tokens, got ", tokens);
}

}  // namespace attentive
