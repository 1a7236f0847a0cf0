#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/functional/attention.h>

namespace attentive {

/// The backend that a call would use, and why the others were not chosen: the answer to "why is my attention
/// slow?"
struct Explanation {
  struct Candidate {
    Backend backend;
    bool available;
    std::string reason;  ///< why it cannot compute the call; if it can, a description of it
  };

  Backend chosen = Backend::Reference;
  std::vector<Candidate> candidates;  ///< fastest first
  /// Remarks: what rules out a faster path and how to change that, queries that see no key, a mask that looks
  /// reversed, the name of a score function, how many tiles a mask function skips.
  std::vector<std::string> notes;

  /// A readable table, one line per candidate.
  std::string to_string() const;
};

std::ostream& operator<<(std::ostream& out, const Explanation& explanation);

/// Explains the call `attention(q, k, v, options, extras)` without running it, taking this thread's guards
/// into account. For bad arguments it throws what the call itself would throw.
///
/// Unlike `attention`, it also reads the mask in order to warn. It notes how many queries see no key and the
/// first of them, and whether a mask of pairs looks reversed for the causal order, that is, whether it lets
/// queries see only later keys or leaves a causal call nothing but the diagonal. If the native kernel takes a
/// call with a mask function, it notes how many tiles are skipped and how many need no test. A mask on the
/// meta device is not read. Memory: up to some ten MB, or a multiple of one row of the mask; time: a few
/// passes over its pairs, or over B (L + S) numbers if no term of the mask has pairs.
///
///   std::cout << attentive::explain(q, k, v, {.dropout_p = 0.1});
Explanation explain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionOptions& options = {}, const AttentionExtras& extras = {});

/// Draws, as a grid, the keys that each query may see in a call with these options and this mask. Only the
/// options `causal` and `window` have an effect. Every backend computes with the visibility that is drawn.
/// Format, errors and memory are those of `Mask::describe`.
///
///   std::cout << attentive::describe_mask({}, {.causal = Causal::BottomRight}, /*queries=*/2, /*keys=*/4);
std::string describe_mask(const Mask& mask, const AttentionOptions& options, int64_t queries, int64_t keys,
                          const MaskView& view = {});

}  // namespace attentive
