#pragma once

// Positions of tokens of which some are in other places.

#include <cstdint>
#include <vector>

#include <ATen/ops/cat.h>

#include <attentive/functional/attention_context.h>

namespace attentive {

// `at_position(x, p)` for tokens (…, T, features) of which the first has position p; with a context, for each run of its tokens.
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
