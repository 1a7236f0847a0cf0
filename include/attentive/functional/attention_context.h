#pragma once

#include <cstdint>
#include <vector>

#include <attentive/functional/attention.h>

namespace attentive {

/// A sequence of which only some tokens are here; the others are in other processes. A module that has one
/// asks it for attention and for the positions of its tokens, and does the rest, token by token, as ever.
///
/// `attentive::ContextParallel` of the component `distributed` is one.
class AttentionContext {
 public:
  /// Tokens that follow one another in the sequence.
  struct Run {
    int64_t first = 0;  ///< position of the first of them in the whole sequence
    int64_t length = 0;
  };

  virtual ~AttentionContext() = default;
  /// Into how many parts of equal length the sequence is cut.
  virtual int64_t size() const = 0;
  /// Where in the whole sequence the tokens are that are here, in their order. `tokens` is their number.
  virtual std::vector<Run> runs(int64_t tokens) const = 0;
  /// attention() over the whole sequence, for the queries that are here.
  /// q (B, H, tokens, D), k (B, Hkv, tokens, D), v (B, Hkv, tokens, Dv): of the tokens that are here. Options,
  /// masks, slopes and sinks are those of the whole sequence, the same in all processes.
  virtual AttentionResult attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options, const AttentionExtras& extras) = 0;
};

}  // namespace attentive
