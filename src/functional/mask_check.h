#pragma once

// Checks of a call's mask as a whole. They read every pair of the mask's terms, so `attention` does not run
// them; `explain` and `describe_mask` do.

#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>

#include "kernels/problem.h"
#include "kernels/reference/visibility.h"

namespace attentive {

/// Visits the rows of the (L, S) score matrix from top to bottom, in blocks whose visible pairs take little
/// memory.
void for_each_block(const kernels::Problem& problem,
                    const std::function<void(const kernels::reference::Rectangle&)>& visit);

/// A text that says how many of the queries see no key and which is the first; empty if every query sees one.
std::string queries_without_keys(const kernels::Problem& problem);

/// A text that says why a term of pairs looks as if true meant the opposite: it lets queries see only later
/// keys, or leaves a causal call nothing but the diagonal. Empty if no term does. Padding, windows and
/// document masks do not look like that, nor does a term of cross-attention unless the call is causal.
std::string reversed_mask(const Mask& mask, const AttentionOptions& options, const kernels::Problem& problem);

/// Reduces every dimension that repeats the same memory to size 1; the result broadcasts to the original
/// shape.
inline at::Tensor without_repeats(at::Tensor x) {
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (x.stride(d) == 0 && x.size(d) > 1) x = x.narrow(d, 0, 1);
  }
  return x;
}

}  // namespace attentive
