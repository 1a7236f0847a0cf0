#pragma once

// What can be said of a call's mask as a whole. It reads every pair of the mask's terms, so it is not part of
// a call: `explain` and `describe_mask` ask.

#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>

#include "kernels/problem.h"
#include "kernels/reference/visibility.h"

namespace attentive {

// The rows of the (L, S) score matrix from top to bottom, in blocks whose visible pairs take little memory.
void for_each_block(const kernels::Problem& problem,
                    const std::function<void(const kernels::reference::Rectangle&)>& visit);

// How many queries see no key, of how many, and which is the first; empty if every query sees one.
std::string queries_without_keys(const kernels::Problem& problem);

// Why a term of pairs looks as if true meant the opposite in it: it shows queries the keys after them, or
// leaves nothing but the diagonal to a causal call. Empty if no term does. Padding, windows and documents do
// not look so, nor does a term of cross-attention unless the call is causal.
std::string reversed_mask(const Mask& mask, const AttentionOptions& options, const kernels::Problem& problem);

// The tensor with size 1 in every dimension that repeats the same memory: it broadcasts to what it was.
inline at::Tensor without_repeats(at::Tensor x) {
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (x.stride(d) == 0 && x.size(d) > 1) x = x.narrow(d, 0, 1);
  }
  return x;
}

}  // namespace attentive
