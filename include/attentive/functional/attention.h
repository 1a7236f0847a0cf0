#pragma once

#include <optional>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/core/result.h>

namespace attentive {

/// The tensors of a call beside q, k and v, and what it returns beside the output.
struct AttentionExtras {
  Mask mask = {};
  /// (H) or (B, H), floating: adds -slope * |i + S - L - j| to the scores (ALiBi).
  at::Tensor alibi_slopes = {};
  /// (H), floating: one more logit per head in every softmax denominator, whose value is zero. Gradients flow
  /// to it.
  at::Tensor sinks = {};
  /// The CPU generator that dropout draws from; not set: the default CPU generator.
  std::optional<at::Generator> generator = std::nullopt;
  Weights weights = Weights::None;
  bool logsumexp = false;
};

/// Scaled dot-product attention, the one function that every module of this package calls.
///
///   scores = scale * q k^T -> softcap -> + bias -> + ALiBi -> mask, causal, window -> softmax -> dropout ->
///   times v
///
///   q (..., H, L, D), k (..., Hkv, S, D), v (..., Hkv, S, Dv) -> (..., H, L, Dv)
///
/// Also takes (L, D) and (B, L, D): one head. H must be a multiple of Hkv (grouped queries): query head h
/// reads key head h / (H / Hkv), and no key is repeated in memory. Strides are free. One floating dtype for
/// all three: float64, float32, bfloat16 or float16; statistics of the half types are float32.
///
/// A query without any key gets zero output, zero weights and zero gradients. A key that no query of its
/// (batch, head) may see may hold NaN or Inf: it reaches no output and no gradient. A key that some queries
/// see reaches the others neither by its score; a non-finite *value* row may reach them, as in PyTorch.
///
/// Before a backward pass the result may be changed in place (`y += x`) and lengths and key masks refilled; a
/// mask of pairs that was changed raises autograd's version error.
///
/// Throws c10::ValueError or c10::TypeError that name the argument, what was expected and what came.
/// Memory: O(B H L S) with the reference (O(B H L W) with a window), O(B H L Dv) with a fused backend.
/// Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.
///
///   auto y = attentive::attention(q, k, v, {.causal = Causal::BottomRight}, Mask::key_lengths(lengths));
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionOptions& options = {}, const Mask& mask = {});

/// The same with every extra tensor, and weights and logsumexp on request. Asking for weights costs O(B H L
/// S) memory.
///
///   auto [y, w, lse] = attentive::attention(q, k, v, {}, {.mask = mask, .weights = Weights::Clean});
AttentionResult attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionOptions& options, const AttentionExtras& extras);

/// Attention over sequences of different lengths packed one after the other, without padding.
///
///   q (Tq, H, D), k (Tk, Hkv, D), v (Tk, Hkv, Dv) -> output (Tq, H, Dv), logsumexp (H, Tq)
///   cu_seqlens_q, cu_seqlens_k: int32 or int64 (N + 1) on the CPU, starting at 0, never decreasing, ending
///   at Tq and Tk: sequence n owns rows cu_seqlens[n] .. cu_seqlens[n + 1] - 1. Causal, window and ALiBi
///   count inside a sequence.
///
/// `extras.mask` must be empty and weights cannot be asked for: their shapes have no meaning here.
/// Throws c10::ValueError or c10::TypeError like `attention`.
///
///   auto y = attentive::attention_varlen(q, k, v, ends, ends, {.causal = Causal::BottomRight}).output;
AttentionResult attention_varlen(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const at::Tensor& cu_seqlens_q, const at::Tensor& cu_seqlens_k,
                                 const AttentionOptions& options = {}, const AttentionExtras& extras = {});

}  // namespace attentive
