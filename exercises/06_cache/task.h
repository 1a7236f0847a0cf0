#pragma once

#include <ATen/core/Tensor.h>

namespace exercises {

/// Keys and values of the tokens so far, (B, H, tokens so far, d); undefined before the first token.
struct Cache {
  at::Tensor k = {};
  at::Tensor v = {};
};

/// Causal attention of new tokens: q, k, v (B, H, new, d) -> (B, H, new, d). Each new token sees all earlier
/// tokens, itself, and the new tokens before it. Afterwards, the cache also holds the new tokens.
at::Tensor step(Cache& cache, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

}  // namespace exercises
