#pragma once

#include <functional>
#include <vector>

#include <attentive/functional/attention.h>

#include "support/option_cases.h"

namespace attentive::test {

/// Attention by scalar loops in float64, written from the definition alone: one query, one key at a time.
/// Tensors are (B, H, L, D). The reference is checked against it, so the two share no code.
struct NaiveCall {
  at::Tensor q, k, v;
  AttentionOptions options;
  at::Tensor keep;                                  ///< bool, broadcasts to (B, H, L, S)
  at::Tensor bias;                                  ///< broadcasts to (B, H, L, S)
  at::Tensor slopes;                                ///< (H) or (B, H)
  at::Tensor sinks;                                 ///< (H)
  at::Tensor survivors;                             ///< bool (B, H, L, S): the weights that dropout keeps
  at::Tensor key_lengths = {}, query_lengths = {};  ///< integers (B)
  /// A weight below this number, or a product with one, may be 0 in the type in which it is held: float32.
  double may_underflow = 1e-30;
};

/// The key at which the first query of each item stands.
std::vector<int64_t> naive_origins(const NaiveCall& call);

AttentionResult naive_attention(const NaiveCall& call);

/// The factors by which results enter the scalar that is differentiated; undefined ones are 0.
struct NaiveDirections {
  at::Tensor output, clean_weights, dropped_weights, logsumexp;
};

struct NaiveGradients {
  at::Tensor q, k, v;
  at::Tensor bias;    ///< (B, H, L, S)
  at::Tensor slopes;  ///< (B, H)
  at::Tensor sinks;   ///< (H)
};

struct NaiveResults {
  AttentionResult forward;     ///< clean weights
  at::Tensor dropped_weights;  ///< equal to the clean weights without dropout
  NaiveGradients gradients;
  /// Sums of absolute terms, which bound the rounding error: for each output, for the largest score of each
  /// logsumexp, and for each gradient.
  at::Tensor output_terms, logsumexp_terms;
  NaiveGradients terms;
};

/// A weight of 0 times NaN or Inf is NaN to an implementation that multiplies it, and 0 to one that skips it.
///   Skipped     a pair that is hidden or dropped, or whose score is -inf, contributes nothing
///   Multiplied  it contributes with a weight of 0, as a pair does whose weight underflows. Keys
///               that no query of their head sees are not read, but their gradients sum such products.
/// With a sink of +inf, a row whose scores hold NaN or +inf is 0 for Skipped and NaN for Multiplied. The
/// logsumexp of a row that holds NaN and +inf is NaN for Skipped and +inf for Multiplied. If the two give
/// numbers of different kinds (finite, NaN, +inf, -inf), the definition allows both.
enum class HiddenPairs { Skipped, Multiplied };

/// Computes forward and backward, for numbers that need not be finite.
NaiveResults naive_attention(const NaiveCall& call, const NaiveDirections& directions,
                             HiddenPairs hidden = HiddenPairs::Skipped);

// Calls whose scores are large and exact in float32, so that only the softmax and the products after it can
// have errors.

/// A float64 call with scores of `base` or -`base` plus small integers, with 4 query heads over 2 key heads.
/// `base` is the square of a number that bfloat16 represents.
OptionCall exact_scores(double base, int64_t L, int64_t S, bool negative = false);

struct ExactVariant {
  const char* name;
  std::function<void(OptionCall&)> apply;
};

/// Options with which the scores of such a call are still exact.
const std::vector<ExactVariant>& exact_variants();

}  // namespace attentive::test
