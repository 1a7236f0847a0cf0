#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include <attentive/functional/attention.h>

namespace attentive {

/// Which backend a call would use, and why not the others: the answer to "why is my attention slow?"
struct Explanation {
  struct Candidate {
    Backend backend;
    bool available;
    std::string reason;  ///< why it cannot compute the call, or what it is
  };

  Backend chosen = Backend::Reference;
  std::vector<Candidate> candidates;  ///< fastest first
  /// What rules out a faster path, and how to change that; queries that see no key; a mask that looks reversed.
  std::vector<std::string> notes;

  /// A readable table, one line per candidate.
  std::string to_string() const;
};

std::ostream& operator<<(std::ostream& out, const Explanation& explanation);

/// Explains the call `attention(q, k, v, options, extras)` without running it, taking this thread's guards
/// into account. For bad arguments it throws what the call itself would throw.
///
/// It also reads the mask, which a call of `attention` never does for a warning, and notes how many queries
/// see no key, which is the first, and whether a mask of pairs looks reversed for the causal order: it shows
/// queries only later keys, or leaves nothing but the diagonal to a causal call. A mask on the meta device is
/// not read. Memory: up to some ten MB, or a multiple of one row of the mask; time: a few passes over its
/// pairs, or over B (L + S) numbers if no term of the mask has pairs.
///
///   std::cout << attentive::explain(q, k, v, {.dropout_p = 0.1});
Explanation explain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionOptions& options = {}, const AttentionExtras& extras = {});

}  // namespace attentive
