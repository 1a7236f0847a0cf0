#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include <attentive/core/mask.h>
#include <attentive/core/option_list.h>
#include <attentive/core/options.h>

namespace torch::nn {
class Module;
}

namespace attentive {

/// The options of `linear_attention`.
///
///   LinearAttentionCall{.causal = Causal::BottomRight, .feature_map = [](auto& x) { return at::relu(x); }}
struct LinearAttentionCall {
  /// A differentiable map (B, H, T, D) -> (B, H, T, F), applied to queries and keys in float32 (in float64
  /// for float64 inputs). Products of its features should not be negative. If empty, elu(x) + 1.
  using FeatureMap = std::function<at::Tensor(const at::Tensor&)>;

  CausalOption causal = Causal::None;
  FeatureMap feature_map = {};
  /// Number of tokens that a causal call processes at a time. It takes O(T * chunk_size + T * F * Dv) time,
  /// and the result does not depend on it.
  int64_t chunk_size = 128;
  /// Added to every denominator.
  double eps = 0.0;

  ATTENTIVE_OPTIONS(causal, feature_map, chunk_size, eps);
};

/// Linear attention: a product of features replaces the softmax's exponential, so that time and memory are
/// linear in the number of tokens, both forward and backward.
///
///   out_i = sum_j (f(q_i) . f(k_j)) v_j / (sum_j f(q_i) . f(k_j) + eps),  j over the keys that i may see
///
///   q (..., H, L, D), k (..., Hkv, S, D), v (..., Hkv, S, Dv) -> (..., H, L, Dv); also (L, D) and (B, L, D)
///
/// Shapes, grouped heads, dtypes (under autocast, its dtype) and causal alignments are those of `attention`;
/// there is neither a scale nor dropout. `mask` may hide keys (`Mask::key_keep`, `Mask::key_lengths`). A mask
/// that hides or biases single pairs is refused, because no sum in linear time can express it. `caller` is
/// the module that makes the call: `AttentionRecorder` names the call after it. A query whose denominator is
/// zero, such as one that may see no key, gets zero output and zero gradients. A key hidden from every query
/// may hold NaN.
///
/// Throws c10::ValueError or c10::TypeError naming the argument, also for a feature map that returns another
/// shape.
/// Memory: O(B H (L + S) (F + Dv)); a causal backward pass recomputes the running sums instead of storing
/// them.
/// Source: Katharopoulos et al. 2020, "Transformers are RNNs", equations 5, 7 and 12.
///
///   auto y = attentive::linear_attention(q, k, v, {.causal = attentive::Causal::BottomRight});
at::Tensor linear_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const LinearAttentionCall& call = {}, const Mask& mask = {},
                            const torch::nn::Module* caller = nullptr);

/// Checks the numbers of a call (chunk_size > 0, eps finite and not negative); `caller` begins the error
/// message.
void check_linear_attention_call(const char* caller, const LinearAttentionCall& call);

}  // namespace attentive
