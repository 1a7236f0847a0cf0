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
  at::Tensor slopes;     // (H)
  at::Tensor sinks;      // (H)
  at::Tensor survivors;  // bool (B, H, L, S): dropout's
};

AttentionResult naive_attention(const NaiveCall& call);

}  // namespace attentive::test
