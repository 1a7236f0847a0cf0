#pragma once

#include <attentive/functional/attention.h>

namespace attentive::test {

// Attention by scalar loops in float64, written from the definition alone: one query, one key at a time.
// Takes (B, H, L, D) tensors; `keep` (from dropout) scales weights if given: bool (B, H, L, S). It is what
// the reference is checked against, so it shares no code with it.
struct NaiveCall {
  at::Tensor q, k, v;
  AttentionOptions options;
  at::Tensor keep;       // bool, broadcasts to (B, H, L, S)
  at::Tensor bias;       // broadcasts to (B, H, L, S)
  at::Tensor slopes;     // (H) or (B, H)
  at::Tensor sinks;      // (H)
  at::Tensor survivors;  // bool (B, H, L, S): dropout's
};

AttentionResult naive_attention(const NaiveCall& call);

// Factors of the results in the scalar that is differentiated; undefined ones are 0.
struct NaiveDirections {
  at::Tensor output, clean_weights, dropped_weights, logsumexp;
};

struct NaiveGradients {
  at::Tensor q, k, v;
  at::Tensor bias;    // (B, H, L, S)
  at::Tensor slopes;  // (B, H)
  at::Tensor sinks;   // (H)
};

struct NaiveResults {
  AttentionResult forward;     // clean weights
  at::Tensor dropped_weights;  // the same where nothing is dropped
  NaiveGradients gradients;
  // Sums of absolute terms, which say what rounding may leave: of each output, of the largest score beside each
  // logsumexp, and of each gradient.
  at::Tensor output_terms, logsumexp_terms;
  NaiveGradients terms;
};

// A weight of 0 times NaN or Inf is NaN to an implementation that multiplies it, and 0 to one that skips it.
//   Skipped     a pair that is hidden or dropped, or whose score is -inf, takes part in nothing
//   Multiplied  it takes part with a weight of 0, as one whose weight underflows in float32 does. Keys that no
//               query of their head sees are not read, but their gradients are sums of such products.
// Beside a sink of +inf, a row whose scores hold NaN or +inf is 0 to the first and NaN to the second. The logsumexp of a row
// that holds NaN and +inf is NaN to the first and +inf to the second.
// Where the two give numbers of another kind (finite, NaN, +inf, -inf), the definition allows both.
enum class HiddenPairs { Skipped, Multiplied };

// Forward and backward, for numbers that need not be finite.
NaiveResults naive_attention(const NaiveCall& call, const NaiveDirections& directions,
                             HiddenPairs hidden = HiddenPairs::Skipped);

}  // namespace attentive::test
