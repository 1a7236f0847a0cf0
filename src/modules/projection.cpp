#include "modules/projection.h"

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include <attentive/functional/alibi.h>

#include "core/autocast.h"
#include "core/check.h"
#include "functional/linear.h"

namespace attentive {

at::Tensor project(const torch::nn::Linear& layer, const at::Tensor& x) {
  return attentive::linear(x, layer->weight, layer->bias);
}

at::Tensor draw_matrix(int64_t d_in, int64_t d_out, MatrixInit init) {
  switch (init) {
    case MatrixInit::Uniform:
      return at::rand({d_in, d_out});
    case MatrixInit::Normal:
      return at::randn({d_in, d_out});
    case MatrixInit::KaimingUniform:
      break;
  }
  const double bound = 1.0 / std::sqrt(static_cast<double>(d_in));
  return at::empty({d_in, d_out}).uniform_(-bound, bound);
}

const char* to_string(MatrixInit init) {
  switch (init) {
    case MatrixInit::Uniform:
      return "uniform";
    case MatrixInit::Normal:
      return "normal";
    case MatrixInit::KaimingUniform:
      break;
  }
  return "kaiming_uniform";
}

AttentionResult attend(const AttentionOptions& options, double dropout_p, const at::Tensor& q,
                       const at::Tensor& k, const at::Tensor& v, const Mask& mask, Weights which) {
  AttentionExtras extras;
  extras.mask = mask;
  extras.weights = which;
  return attend(options, dropout_p, q, k, v, extras);
}

AttentionResult attend(const AttentionOptions& options, double dropout_p, const at::Tensor& q,
                       const at::Tensor& k, const at::Tensor& v, const AttentionExtras& extras) {
  auto call = options;
  call.dropout_p = dropout_p;
  return attention(q, k, v, call, extras);
}

AttentionExtras head_extras(bool alibi, const at::Tensor& sinks, int64_t num_heads, at::Device device,
                            const Mask& mask, Weights which) {
  AttentionExtras extras;
  extras.mask = mask;
  if (alibi) extras.alibi_slopes = alibi_slopes(num_heads, device);
  extras.sinks = sinks;
  extras.weights = which;
  return extras;
}

void check_head_extras(const char* who, const AttentionOptions& options, bool sinks) {
  TORCH_CHECK_VALUE(!sinks || !options.softmax_plus_one, who,
                    ": expected sinks or attention().softmax_plus_one, got both");
}

at::Tensor batched(const at::Tensor& x) {
  return x.dim() == 2 ? x.unsqueeze(0) : x;
}

std::pair<at::Tensor, at::Tensor> unbatched_like(const at::Tensor& x, const at::Tensor& output,
                                                 const at::Tensor& weights) {
  if (x.dim() != 2) return {output, weights};
  return {output.squeeze(0), weights.defined() ? weights.squeeze(0) : weights};
}

void check_sequence(const char* who, const char* name, const at::Tensor& x, int64_t features,
                    const at::Tensor& parameter) {
  check_defined(who, name, x);
  TORCH_CHECK_VALUE((x.dim() == 2 || x.dim() == 3) && x.size(-1) == features, who, ": expected ", name,
                    " of shape (B, T, ", features, ") or (T, ", features, "), got ", shape_string(x.sizes()));
  check_device(who, name, x, parameter);
  // Autocast casts later.
  TORCH_CHECK_TYPE(is_autocast(x.device()) || x.scalar_type() == parameter.scalar_type(), who, ": expected ",
                   name, " of dtype ", parameter.scalar_type(), " like the parameters, got ",
                   x.scalar_type());
}

void check_norm_input(const char* who, const at::Tensor& x, int64_t features, const at::Tensor& parameter) {
  check_floating(who, "x", x);
  TORCH_CHECK_VALUE(x.dim() > 0 && x.size(-1) == features, who, ": expected x of shape (..., ", features,
                    "), got ", shape_string(x.sizes()));
  check_device(who, "x", x, parameter);
  const auto type = x.scalar_type();
  const bool half = type == at::kBFloat16 || type == at::kHalf;
  TORCH_CHECK_TYPE(type == parameter.scalar_type() || (half && parameter.scalar_type() == at::kFloat) ||
                       (x.is_cuda() && is_autocast(x.device())),
                   who, ": expected x of dtype ", parameter.scalar_type(), " like the parameters, got ",
                   type);
}

void check_same_batch(const char* who, const char* name, const at::Tensor& x, const char* other_name,
                      const at::Tensor& other) {
  TORCH_CHECK_VALUE(x.dim() == other.dim() && (x.dim() == 2 || x.size(0) == other.size(0)), who,
                    ": expected ", name, " of the batch size of ", other_name, ", got ", name, " ",
                    shape_string(x.sizes()), ", ", other_name, " ", shape_string(other.sizes()));
}

void check_context(const char* who, int64_t tokens, int64_t context_length) {
  TORCH_CHECK_VALUE(context_length == 0 || tokens <= context_length, who,
                    ": expected at most context_length = ", context_length, " tokens, got ", tokens);
}

void check_positive(const char* who, const char* name, int64_t value) {
  TORCH_CHECK_VALUE(value > 0, who, ": expected ", name, " > 0, got ", value);
  TORCH_CHECK_VALUE(value <= int64_t{1} << 48, who, ": expected ", name, " of at most 2^48, got ", value);
}

void check_count(const char* who, const char* name, int64_t value) {
  constexpr int64_t most = int64_t{1} << 20;
  TORCH_CHECK_VALUE(value > 0 && value <= most, who, ": expected ", name, " in [1, ", most, "], got ", value);
}

void check_heads(const char* who, const char* name, int64_t features, int64_t num_heads,
                 const char* heads_name) {
  check_positive(who, heads_name, num_heads);
  TORCH_CHECK_VALUE(features % num_heads == 0, who, ": expected ", heads_name, " to divide ", name, " = ",
                    features, ", got ", num_heads);
}

}  // namespace attentive
