#include <algorithm>
#include <cmath>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/threshold.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <attentive/functional/linear_attention.h>

#include "core/autocast_modes.h"
#include "core/check.h"
#include "functional/problem_builder.h"
#include "functional/recording.h"

namespace attentive {
namespace {

constexpr const char* kLinearAttention = "linear_attention";

// elu(x) + 1, written so that a very negative x keeps its digits: exp(x) instead of expm1(x) + 1.
// at::threshold is relu with a meta kernel; its gradient at 0 is 0, so the gradient of this function there
// comes from exp alone.
at::Tensor elu_plus_one(const at::Tensor& x) {
  const auto positive = at::threshold(x, 0, 0);
  return positive + at::exp(x - positive);
}

// The causal sums over n queries aligned with n keys; query i sees keys 0 .. i and the earlier keys summed in
// `initial`.
//   q (B, Hkv, G, n, F), k (B, Hkv, n, F), v (B, Hkv, n, E), initial (B, Hkv, F, E) -> (B, Hkv, G, n, E)
// Only the inputs are saved. The backward pass visits the chunks twice: from the front with the sums of keys
// times values, and from the back with the sums of queries times gradients.
class CausalSums : public torch::autograd::Function<CausalSums> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v, const at::Tensor& initial,
                            int64_t chunk) {
    context->save_for_backward({q, k, v, initial});
    context->saved_data["chunk"] = chunk;
    return composed(q, k, v, initial, chunk);
  }

  // Computes the sums by operations that autograd records, for forward-mode differentiation.
  static at::Tensor composed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& initial, int64_t chunk) {
    std::vector<at::Tensor> outputs;
    auto state = initial;
    for (int64_t start = 0; start < k.size(2); start += chunk) {
      const auto qc = rows(q, start, chunk), kc = cut(k, start, chunk), vc = cut(v, start, chunk);
      const auto inside = at::matmul(past(at::matmul(qc, kc.transpose(2, 3)), q.size(2)), vc);
      outputs.push_back((at::matmul(qc, state) + inside).unflatten(2, {q.size(2), vc.size(2)}));
      state = state + at::matmul(kc.transpose(2, 3), vc);
    }
    return at::cat(outputs, 3);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const c10::impl::ExcludeDispatchKeyGuard full_precision(c10::autocast_dispatch_keyset);
    const auto saved = context->get_saved_variables();
    const auto &q = saved[0], &k = saved[1], &v = saved[2], &g = gradients[0];
    const int64_t chunk = context->saved_data["chunk"].toInt();
    const int64_t groups = q.size(2);
    std::vector<at::Tensor> dq, dk, dv;

    auto state = saved[3];
    for (int64_t start = 0; start < k.size(2); start += chunk) {
      const auto gc = rows(g, start, chunk), kc = cut(k, start, chunk), vc = cut(v, start, chunk);
      const auto inside = at::matmul(past(at::matmul(gc, vc.transpose(2, 3)), groups), kc);
      dq.push_back((at::matmul(gc, state.transpose(2, 3)) + inside).unflatten(2, {groups, kc.size(2)}));
      state = state + at::matmul(kc.transpose(2, 3), vc);
    }

    auto later = at::zeros_like(saved[3]);
    for (int64_t start = (k.size(2) - 1) / chunk * chunk; start >= 0; start -= chunk) {
      const auto qc = rows(q, start, chunk), gc = rows(g, start, chunk);
      const auto kc = cut(k, start, chunk), vc = cut(v, start, chunk);
      const auto dscores = past(at::matmul(gc, vc.transpose(2, 3)), groups);
      const auto scores = past(at::matmul(qc, kc.transpose(2, 3)), groups);
      dk.push_back(at::matmul(vc, later.transpose(2, 3)) + at::matmul(dscores.transpose(2, 3), qc));
      dv.push_back(at::matmul(kc, later) + at::matmul(scores.transpose(2, 3), gc));
      later = later + at::matmul(qc.transpose(2, 3), gc);
    }
    std::reverse(dk.begin(), dk.end());
    std::reverse(dv.begin(), dv.end());
    return {at::cat(dq, 3), at::cat(dk, 2), at::cat(dv, 2), later, at::Tensor()};
  }

 private:
  static at::Tensor cut(const at::Tensor& x, int64_t start, int64_t chunk) {
    return x.slice(2, start, start + chunk);
  }
  // The queries of a chunk, with the query heads of a group stacked as rows: (B, Hkv, G * c, F).
  static at::Tensor rows(const at::Tensor& x, int64_t start, int64_t chunk) {
    return x.slice(3, start, start + chunk).flatten(2, 3);
  }
  // Sets the scores (B, Hkv, G * c, c) of keys after their query to zero.
  static at::Tensor past(const at::Tensor& scores, int64_t groups) {
    return at::tril(scores.unflatten(2, {groups, scores.size(3)})).flatten(2, 3);
  }
};

// The real keys: bool (B or 1, 1, S, 1), or undefined if every key is real.
at::Tensor visible_keys(const kernels::Problem& problem) {
  at::Tensor real = problem.key_keep;
  if (problem.key_lengths.defined()) {
    const auto j = at::arange(problem.keys(), problem.key_lengths.options());
    const auto within = j.lt(problem.key_lengths.unsqueeze(1));
    real = real.defined() ? real.bitwise_and(within) : within;
  }
  return real.defined() ? real.unsqueeze(1).unsqueeze(3) : real;
}

at::Tensor features(const LinearAttentionCall& call, const char* name, const at::Tensor& x) {
  if (!call.feature_map) return elu_plus_one(x);
  auto result = call.feature_map(x);
  TORCH_CHECK_VALUE(result.defined() && result.dim() == 4 &&
                        result.sizes().slice(0, 3) == x.sizes().slice(0, 3) && result.size(3) > 0,
                    kLinearAttention, ": expected feature_map to turn ", name, " ", shape_string(x.sizes()),
                    " into (B, H, T, F), got ", describe(result));
  TORCH_CHECK_TYPE(result.scalar_type() == x.scalar_type(), kLinearAttention,
                   ": expected feature_map to keep dtype ", x.scalar_type(), ", got ", result.scalar_type());
  return result;
}

// The numerators and, in the last column, the denominators: (B, Hkv, G, L, Dv + 1).
at::Tensor sums(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t chunk_size,
                const kernels::Band& band) {
  const int64_t queries = q.size(3), keys = k.size(2), groups = q.size(2);
  const auto state_of = [](const at::Tensor& some_k, const at::Tensor& some_v) {
    return at::matmul(some_k.transpose(2, 3), some_v);
  };
  const auto read = [&](const at::Tensor& some_q, const at::Tensor& state) {
    return at::matmul(some_q.flatten(2, 3), state).unflatten(2, {groups, some_q.size(3)});
  };
  if (!band.has_hi()) return read(q, state_of(k, v));

  // `aligned` queries and keys form a causal square. Before it there are keys that all queries see (hi > 0)
  // or queries that see no key (hi < 0); after it there are queries that see every key.
  const int64_t before = std::max<int64_t>(band.hi, 0);
  const int64_t without = std::min(std::max<int64_t>(-band.hi, 0), queries);
  const int64_t aligned = std::min(queries - without, keys - before);
  const int64_t after = queries - without - aligned;
  std::vector<at::Tensor> parts;
  if (without > 0)
    parts.push_back(at::zeros({q.size(0), q.size(1), groups, without, v.size(3)}, v.options()));
  if (aligned > 0) {
    const auto initial = state_of(k.slice(2, 0, before), v.slice(2, 0, before));
    const auto some_q = q.slice(3, without, without + aligned), some_k = k.slice(2, before),
               some_v = v.slice(2, before);
    const bool tangents = has_tangent(q) || has_tangent(k) || has_tangent(v);
    parts.push_back(tangents ? CausalSums::composed(some_q, some_k, some_v, initial, chunk_size)
                             : CausalSums::apply(some_q, some_k, some_v, initial, chunk_size));
  }
  if (after > 0) parts.push_back(read(q.slice(3, without + aligned), state_of(k, v)));
  return parts.empty() ? read(q, state_of(k, v)) : at::cat(parts, 3);
}

}  // namespace

void check_linear_attention_call(const char* caller, const LinearAttentionCall& call) {
  TORCH_CHECK_VALUE(call.chunk_size > 0, caller, ": expected chunk_size > 0, got ", call.chunk_size);
  TORCH_CHECK_VALUE(std::isfinite(call.eps) && call.eps >= 0.0, caller,
                    ": expected eps to be finite and not negative, got ", call.eps);
}

at::Tensor linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const LinearAttentionCall& call, const Mask& mask,
                            const torch::nn::Module* caller) {
  check_linear_attention_call(kLinearAttention, call);
  TORCH_CHECK_VALUE(
      mask.keep_terms().empty() && mask.bias_terms().empty() && mask.query_length_terms().empty(),
      kLinearAttention,
      ": expected a mask of whole keys (Mask::key_keep, Mask::key_lengths), got one that hides or "
      "biases queries or single pairs, which no linear-time sum can express");
  AttentionExtras extras;
  extras.mask = mask;
  const auto normalized = normalize(kLinearAttention, q, k, v, {.causal = call.causal}, extras);
  const auto& problem = normalized.problem;
  // Under autocast, q, k and v have its dtype by now; the sums over all keys are computed in full precision.
  const c10::impl::ExcludeDispatchKeyGuard full_precision(c10::autocast_dispatch_keyset);
  const auto type = problem.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;

  // Keys that no query sees are removed or set to zero before anything reads them.
  const int64_t seen =
      problem.queries() == 0 ? 0 : problem.band.key_hi(problem.queries() - 1, problem.keys());
  auto keys = problem.k.slice(2, 0, seen).to(type);
  auto values = problem.v.slice(2, 0, seen).to(type);
  auto real = visible_keys(problem);
  if (real.defined()) {
    real = real.slice(2, 0, seen).bitwise_not();  // logical_not has no meta kernel
    keys = keys.masked_fill(real, 0.0);
    values = values.masked_fill(real, 0.0);
  }
  auto key_features = features(call, "k", keys);
  if (real.defined()) key_features = key_features.masked_fill(real, 0.0);
  const auto query_features = features(call, "q", problem.q.to(type));
  TORCH_CHECK_VALUE(query_features.size(3) == key_features.size(3), kLinearAttention,
                    ": expected feature_map to give q and k as many features, got ", query_features.size(3),
                    " and ", key_features.size(3));

  const int64_t kv_heads = problem.kv_heads();
  const auto grouped = query_features.unflatten(1, {kv_heads, kv_heads > 0 ? problem.heads() / kv_heads : 1});
  const auto ones = at::ones({values.size(0), kv_heads, seen, 1}, values.options());
  const auto total = sums(grouped, key_features, at::cat({values, ones}, 3), call.chunk_size, problem.band);
  const auto denominator = total.slice(4, problem.value_dim()) + call.eps;
  const auto empty = denominator.eq(0);
  const auto output = (total.slice(4, 0, problem.value_dim()) / denominator.masked_fill(empty, 1.0))
                          .masked_fill(empty, 0.0)
                          .to(problem.q.scalar_type());
  if (recording::wanted()) [[unlikely]]
    recording::linear_attention(caller, problem, call, query_features, key_features);
  at::DimVector sizes(normalized.leading);
  sizes.push_back(problem.queries());
  sizes.push_back(problem.value_dim());
  return output.reshape(sizes);
}

}  // namespace attentive
