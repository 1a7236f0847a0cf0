#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/score/score_callbacks.h>

namespace attentive {

/// A custom mask for a call, as `AttentionExtras::block_mask`: a mask function, and perhaps which of
/// its tiles are empty and which are full. The native kernel neither reads nor computes an empty tile and
/// tests no pair of a full one; only a strip of up to 32 queries that lies across the border of two tiles
/// with different classes is computed and tested as a whole.
///
/// A `MaskMod` converts to it; each call then classifies the tiles anew. `BlockMask::kept` does so once for
/// many calls, layers and backward passes with the same lengths, of a mask function or of a tensor of pairs.
///
///   const auto blocks = BlockMask::kept(document_mask(documents), 1, heads, tokens, tokens);
///   auto y = attention(q, k, v, {.causal = Causal::BottomRight}, {.block_mask = blocks}).output;
class BlockMask {
 public:
  BlockMask() = default;
  BlockMask(MaskMod mask) : mask_(std::move(mask)) {}  // NOLINT(google-explicit-constructor)

  /// Classifies the tiles of a mask over batch items, heads, queries and keys. A call with this mask must
  /// have these lengths; its batch and heads must be these unless the mask does not depend on them. Tensors
  /// that the mask captured must be on the CPU and must not change while the object is used: a call throws
  /// c10::ValueError if one did. Throws c10::ValueError for an empty mask and for a size below 1. Memory: a
  /// byte per tile of 128 x 128 pairs.
  static BlockMask kept(MaskMod mask, int64_t batch, int64_t heads, int64_t queries, int64_t keys);

  /// Makes a mask of a tensor of pairs, as `Mask::keep` means it, and classifies its tiles: what a program
  /// has computed once serves every layer, step and backward pass.
  ///
  /// keep (L, S), (H, L, S), (B, 1, L, S) or (B, H, L, S), bool, on the CPU: true where query i may attend to
  /// key j. A call with this mask must have L queries and S keys; of B = 1 or H = 1, or without them, it may
  /// have any batch or heads. The tensor is copied, so that it may change afterwards.
  /// Throws c10::TypeError for another dtype, and c10::ValueError for another shape, for an empty tensor and
  /// for one on another device. Memory: a byte per pair, once for dimensions that were expanded, and a byte
  /// per tile.
  ///
  ///   const auto blocks = BlockMask::kept(visible);  // (tokens, tokens)
  ///   auto y = attention(q, k, v, {}, {.block_mask = blocks}).output;  // in every layer and step
  static BlockMask kept(const at::Tensor& keep);

  explicit operator bool() const { return static_cast<bool>(mask_); }
  const MaskMod& mask() const { return mask_; }
  /// Null if the tiles are classified at each call.
  const std::shared_ptr<const detail::BlockClasses>& classes() const { return classes_; }

  /// How many tiles there are, are empty, and are full, over the batch items and heads that differ. All 0
  /// without kept classes.
  struct Count {
    int64_t tiles = 0, empty = 0, full = 0;
  };
  Count count() const;

 private:
  MaskMod mask_;
  std::shared_ptr<const detail::BlockClasses> classes_;
};

}  // namespace attentive

namespace torch::nn {
class Module;
}

namespace attentive {

/// The optional tensors of a call, and which results it returns besides the output.
struct AttentionExtras {
  Mask mask = {};
  /// ALiBi slopes, floating-point, (H) or (B, H): -slope * |i + S - L - j| is added to the score of query i
  /// and key j (another `Align` has another position than i + S - L). Gradients flow to them.
  at::Tensor alibi_slopes = {};
  /// Attention sinks, floating-point, (H): one extra logit per head in every softmax denominator, whose value
  /// is zero. Gradients flow to them.
  at::Tensor sinks = {};
  /// The CPU generator from which dropout draws; if not set, the default CPU generator. An undefined one is
  /// refused.
  std::optional<at::Generator> generator = std::nullopt;
  /// A custom score function (`score_mod` of score/score_mod.h): it changes the scores after scale and
  /// softcap, before bias, ALiBi and masks. Gradients flow through it, and to the tensors that it captured.
  ScoreMod score = {};
  /// A custom mask function (`mask_mod`), which hides pairs as `Mask::keep` does.
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
/// functions count within a sequence; `pair.batch` is the number of the sequence.
///
/// `extras.mask` must be empty, `extras.block_mask` must be without kept tiles, and weights cannot be
/// requested: they have no shape for packed sequences.
/// Throws c10::ValueError or c10::TypeError as `attention` does.
///
///   auto y = attentive::attention_varlen(q, k, v, ends, ends, {.causal = Causal::BottomRight}).output;
AttentionResult attention_varlen(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const at::Tensor& cu_seqlens_q, const at::Tensor& cu_seqlens_k,
                                 const AttentionOptions& options = {}, const AttentionExtras& extras = {});

/// A sequence that is split over processes, of which this process holds some tokens. A module with a context
/// takes attention and the positions of its tokens from it; everything else that it computes is per token.
///
/// `attentive::ContextParallel` of the component `distributed` implements it.
class AttentionContext {
 public:
  /// Consecutive tokens of the sequence.
  struct Run {
    int64_t first = 0;  ///< position of the first token in the whole sequence
    int64_t length = 0;
  };

  virtual ~AttentionContext() = default;
  /// The number of parts of equal length into which the sequence is split.
  virtual int64_t size() const = 0;
  /// The positions in the whole sequence of this process's tokens, in their local order. `tokens` is their
  /// number.
  virtual std::vector<Run> runs(int64_t tokens) const = 0;
  /// Computes attention() over the whole sequence for this process's queries. q (B, H, tokens, D), k (B, Hkv,
  /// tokens, D) and v (B, Hkv, tokens, Dv) belong to this process's tokens. Options, masks, slopes and sinks
  /// are those of the whole sequence and equal in all processes.
  virtual AttentionResult attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options, const AttentionExtras& extras) = 0;
};

/// The ALiBi slopes of num_heads heads as the paper's code has them, as a float32 tensor of shape
/// (num_heads), for `AttentionExtras::alibi_slopes`: 2^(-8 h / n) for h = 1 .. n, where n is the largest
/// power of two of at most num_heads; for the other heads, every other one of the slopes of 2 n heads, from
/// the first on.
///
/// Throws c10::ValueError unless num_heads > 0.
/// Source: Press et al. 2022, "Train Short, Test Long", section 3.
///
///   auto y = attentive::attention(q, k, v, {}, {.alibi_slopes = attentive::alibi_slopes(8)}).output;
at::Tensor alibi_slopes(int64_t num_heads, at::Device device = at::kCPU);

}  // namespace attentive
