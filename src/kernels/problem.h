#pragma once

// One attention call after validation, in the form that every backend receives. All shapes are 4-D.

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <attentive/core/options.h>
#include <attentive/score/score_callbacks.h>

#include "kernels/call.h"

namespace attentive::kernels {

struct Problem : Places {
  at::Tensor q;  ///< (B, H, L, D), any strides
  at::Tensor k;  ///< (B, Hkv, S, D), any strides; H % Hkv == 0
  at::Tensor v;  ///< (B, Hkv, S, Dv), any strides

  /// Masks; an undefined tensor means "no such term".
  at::Tensor keep;           ///< bool, rank 4, broadcasts to (B, H, L, S); true: may attend
  at::Tensor bias;           ///< floating, rank 4, broadcasts to (B, H, L, S); -inf hides the pair
  at::Tensor key_keep;       ///< bool (B, S)
  at::Tensor key_lengths;    ///< int64 (B); keys j >= key_lengths[b] are hidden
  at::Tensor query_lengths;  ///< int64 (B); queries i >= query_lengths[b] see nothing
  at::Tensor alibi_slopes;   ///< floating (B, H) or (1, H)
  at::Tensor sinks;          ///< floating (H)

  std::optional<double> scale;  ///< not set: scores are divided by sqrt(D)
  Band band;
  std::optional<double> softcap;
  ScoreMod score;  ///< a score function of the caller's; none: the scores stay
  MaskMod mask;    ///< a mask function of the caller's
  std::shared_ptr<const detail::BlockClasses> blocks;  ///< of its tiles; null: not classified
  bool normalise = true;  ///< whether a softmax turns scores into weights; if not, the scores are the weights
  /// Tensors that stand for captured ones, in a backward pass that autograd records.
  std::vector<std::pair<const detail::CapturedTensor*, at::Tensor>> captured;

  double dropout_p = 0.0;  ///< in [0, 1]
  DropoutStream dropout_stream = DropoutStream::Any;
  std::optional<at::Generator> generator;  ///< a CPU generator; not set: the default one
  /// Key of the Counter stream if several problems share one draw. If not set, the backend draws it with
  /// `draw_dropout_key`.
  std::optional<uint64_t> dropout_key;

  /// The sequences of a packed problem, each a call of its own: those of `attention_varlen`, whose q, k and v
  /// hold the tokens of all of them as one batch item, without masks and weights; or the batch items of a
  /// call whose lengths differ. Rows of no sequence see nothing. Null: the problem is not packed.
  std::shared_ptr<const std::vector<Sequence>> sequences;
  bool by_item = false;  ///< whether the sequences are the batch items, one each

  Weights weights = Weights::None;
  bool logsumexp = false;

  int64_t batch() const { return q.size(0); }
  int64_t heads() const { return q.size(1); }
  int64_t kv_heads() const { return k.size(1); }
  int64_t queries() const { return q.size(2); }
  int64_t keys() const { return k.size(2); }
  int64_t head_dim() const { return q.size(3); }
  int64_t value_dim() const { return v.size(3); }
  bool has_dropout() const { return dropout_p > 0.0; }
  bool is_empty() const {
    return batch() == 0 || heads() == 0 || queries() == 0 || keys() == 0 || value_dim() == 0;
  }
  bool has_mask() const {
    return keep.defined() || bias.defined() || key_keep.defined() || key_lengths.defined() || mask;
  }
};

/// Whether autograd records operations on x.
inline bool requires_gradient(const at::Tensor& x) {
  return x.defined() && x.requires_grad() && at::GradMode::is_enabled();
}

/// Every tensor of a problem.
inline constexpr std::array kTensors = {&Problem::q,
                                        &Problem::k,
                                        &Problem::v,
                                        &Problem::keep,
                                        &Problem::bias,
                                        &Problem::key_keep,
                                        &Problem::key_lengths,
                                        &Problem::query_lengths,
                                        &Problem::alibi_slopes,
                                        &Problem::sinks};

/// The tensors of a problem that may require a gradient, and whether autograd records operations on one.
inline constexpr std::array kDifferentiable = {&Problem::q,     &Problem::k,    &Problem::v,
                                               &Problem::sinks, &Problem::bias, &Problem::alibi_slopes};
inline bool requires_gradient(const Problem& problem) {
  return std::any_of(kDifferentiable.begin(), kDifferentiable.end(),
                     [&](auto tensor) { return requires_gradient(problem.*tensor); });
}

/// Gradients of a problem's tensors; undefined for a tensor that requires none.
struct Gradients {
  at::Tensor q, k, v, sinks, bias, alibi_slopes;
  std::vector<at::Tensor> captured = {};  ///< one per captured tensor; undefined if it requires none
};

/// The problem's options without its tensors.
inline Problem without_tensors(Problem problem) {
  for (const auto tensor : kTensors) problem.*tensor = at::Tensor();
  return problem;
}

/// Whether a backend can express a call exactly; the reason says why not.
struct Verdict {
  bool can = true;
  std::string reason;

  static Verdict no(std::string why) { return {false, std::move(why)}; }
};

/// A result, or the reason for having none: some kernels find out only from their output that they cannot
/// compute a call.
struct Outcome {
  AttentionResult result;
  Verdict verdict;
};

/// The n-th sequence of a packed problem, as a problem of its own.
Problem sequence_of(const Problem& packed, size_t n);

/// A tensor (B, H, L) or (B, H, L, X) of a packed problem from those of its sequences, (1, H, queries, …);
/// `value` where there is no sequence. `pairs`: X are the keys.
at::Tensor joined(const Problem& packed, std::vector<at::Tensor> parts, bool pairs, double value);

/// The results of a packed problem, of which `run` computes one sequence after the other, or the verdict of
/// the first sequence that it refuses.
Outcome run_by_sequence(const Problem& packed, const std::function<Outcome(const Problem&)>& run);

}  // namespace attentive::kernels
