#pragma once

#include <initializer_list>
#include <optional>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/core/result.h>
#include <attentive/functional/block_mask.h>

namespace torch::nn {
class Module;
}

namespace attentive {

/// The optional tensors of a call, and which results it returns besides the output.
struct AttentionExtras {
  Mask mask = {};
  /// ALiBi slopes, floating-point, (H) or (B, H): -slope * |i + S - L - j| is added to the score of query i
  /// and key j. Gradients flow to them.
  at::Tensor alibi_slopes = {};
  /// Attention sinks, floating-point, (H): one extra logit per head in every softmax denominator, whose value
  /// is zero. Gradients flow to them.
  at::Tensor sinks = {};
  /// The CPU generator from which dropout draws; if not set, the default CPU generator. An undefined one is
  /// refused.
  std::optional<at::Generator> generator = std::nullopt;
  /// A score function of one's own (`score_mod` of score/score_mod.h): it changes the scores after scale and
  /// softcap, before bias, ALiBi and masks. Gradients flow through it, and to the tensors that it captured.
  ScoreMod score = {};
  /// A mask function of one's own (`mask_mod`), which hides pairs as `Mask::keep` does.
  BlockMask block_mask = {};
  /// `Normalise::None`: the scores are the weights, and hidden pairs weigh 0. Refuses sinks, softmax_plus_one
  /// and the logsumexp.
  Normalise normalise = Normalise::Softmax;
  Weights weights = Weights::None;  ///< which weights are returned; gradients flow through them
  bool logsumexp = false;           ///< whether the logsumexp is returned; gradients flow through it
  /// The module that makes the call: `AttentionRecorder` names the call after it. It does not change any
  /// result.
  const torch::nn::Module* caller = nullptr;
};

/// Scaled dot-product attention: the one function that every module of this package calls.
///
///   scores = scale * q k^T -> softcap -> score function -> + bias -> + ALiBi -> mask, causal, window ->
///   softmax -> dropout -> times v
///
///   q (..., H, L, D), k (..., Hkv, S, D), v (..., Hkv, S, Dv) -> (..., H, L, Dv)
///
/// Inputs may also have the shapes (L, D) and (B, L, D), which mean one head. H must be a multiple of Hkv
/// (grouped-query attention): query head h reads key head h / (H / Hkv), and no key is repeated in memory.
/// Inputs may have any strides. All three must have the same floating-point dtype: float64, float32, bfloat16
/// or float16. For the two half types, softmax statistics are float32.
///
/// A query that may see no key gets zero output, zero weights and zero gradients. A key that no query of its
/// (batch, head) may see may hold NaN or Inf: it reaches no output and no gradient. A key that only some
/// queries may see does not reach the other queries through its score; a non-finite *value* row of such a key
/// may reach them, as in PyTorch.
///
/// Before the backward pass, the result may be changed in place (`y += x`), and the tensors of lengths and
/// key masks may be refilled. If a pair mask (`Mask::keep`, `Mask::bias`) was changed in place, the backward
/// pass raises autograd's version error.
///
/// The reference and the native CPU kernel can be differentiated twice. Under `create_graph`, the native
/// kernel's backward pass computes the gradients by the definition, so that they can be differentiated again:
/// with O(B H L S) memory, and with other rounding than without `create_graph`.
///
/// Throws c10::ValueError or c10::TypeError naming the argument, what was expected and what was given.
/// Memory: O(B H L S) with the reference (O(B H L W) with a window of W keys), O(B H L Dv) with a fused
/// backend. The gradient of a bias has the size of the bias.
/// Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.
///
///   auto y = attentive::attention(q, k, v, {.causal = Causal::BottomRight}, Mask::key_lengths(lengths));
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionOptions& options = {}, const Mask& mask = {});

/// Overload with the optional tensors, which also returns weights and logsumexp on request. Returning the
/// weights takes O(B H L S) memory; so does their gradient. Float32 weights that are gone by the time of the
/// backward pass are computed again, in as much memory.
///
///   auto [y, w, lse] = attentive::attention(q, k, v, {}, {.mask = mask, .weights = Weights::Clean});
AttentionResult attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionOptions& options, const AttentionExtras& extras);

namespace detail {
/// A type without values, so that an initializer list of it can only be `{}`.
struct Nothing {
  Nothing() = delete;
};
}  // namespace detail

/// Overload for a last argument `{}`, meaning no mask, which would otherwise match both functions above.
///
///   auto y = attentive::attention(q, k, v, {.causal = Causal::BottomRight}, {});
inline at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionOptions& options, std::initializer_list<detail::Nothing>) {
  return attention(q, k, v, options, Mask());
}

/// Attention over sequences of different lengths that are packed one after another, without padding.
///
///   q (Tq, H, D), k (Tk, Hkv, D), v (Tk, Hkv, Dv) -> output (Tq, H, Dv), logsumexp (H, Tq)
///   cu_seqlens_q, cu_seqlens_k (N + 1), int32 or int64, on the CPU
///
/// The cumulative lengths start at 0, never decrease, and end at Tq and Tk: sequence n owns the rows
/// cu_seqlens[n] .. cu_seqlens[n + 1] - 1. Causal masks, windows, ALiBi and the places of score and mask
/// functions count within a sequence; `at.batch` is the number of the sequence.
///
/// `extras.mask` must be empty, `extras.block_mask` must be without kept tiles, and weights cannot be
/// requested: they have no shape for packed sequences.
/// Throws c10::ValueError or c10::TypeError as `attention` does.
///
///   auto y = attentive::attention_varlen(q, k, v, ends, ends, {.causal = Causal::BottomRight}).output;
AttentionResult attention_varlen(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const at::Tensor& cu_seqlens_q, const at::Tensor& cu_seqlens_k,
                                 const AttentionOptions& options = {}, const AttentionExtras& extras = {});

}  // namespace attentive
