#pragma once

// Positions of the tokens of a sequence that is split over processes.

#include <cstdint>
#include <vector>

#include <ATen/ops/cat.h>

#include <attentive/functional/attention.h>

namespace attentive {

/// Calls at_position(x, p) for tokens x (…, T, features) of which the first has position p; with a context,
/// once for each run of its tokens.
template <class AtPosition>
at::Tensor by_runs(const AttentionContext* context, const at::Tensor& x, int64_t first,
                   const AtPosition& at_position) {
  if (context == nullptr) return at_position(x, first);
  std::vector<at::Tensor> pieces;
  int64_t begin = 0;
  for (const auto& run : context->runs(x.size(-2))) {
    pieces.push_back(at_position(x.narrow(-2, begin, run.length), run.first));
    begin += run.length;
  }
  return at::cat(pieces, -2);
}

}  // namespace attentive
