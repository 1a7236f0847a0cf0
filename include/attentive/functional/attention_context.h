#pragma once

#include <cstdint>
#include <vector>

#include <attentive/functional/attention.h>

namespace attentive {

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

}  // namespace attentive
