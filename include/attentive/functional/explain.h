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
  std::vector<std::string> notes;     ///< what rules out a faster path, and how to change that

  /// A readable table, one line per candidate.
  std::string to_string() const;
};

std::ostream& operator<<(std::ostream& out, const Explanation& explanation);

/// Explains the call `attention(q, k, v, options, extras)` without running it, taking this thread's guards
/// into account. For bad arguments it throws what the call itself would throw.
///
///   std::cout << attentive::explain(q, k, v, {.dropout_p = 0.1});
Explanation explain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionOptions& options = {}, const AttentionExtras& extras = {});

}  // namespace attentive
