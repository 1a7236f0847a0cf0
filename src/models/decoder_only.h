#pragma once

// What decoder-only language models have in common. Every error begins with `who`.

#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

#include <attentive/cache/kv_cache.h>
#include <attentive/models/logits.h>
#include <attentive/modules/transformer_attention.h>

namespace attentive {

struct DecoderSizes {
  const char* who;
  int64_t vocab_size, num_layers, context_length;  // context_length 0: no limit
};

// Throws unless ids are integers (B, T) inside the vocabulary that end within the context, and a cache has
// the model's number of layers. Returns the position of the first of them.
int64_t check_ids(const DecoderSizes& sizes, const at::Tensor& ids, const KVCache* cache);

// The rows of x (B, T, features) that the head multiplies.
at::Tensor tokens_with_logits(const at::Tensor& x, Logits which);

// The mean cross-entropy of `logits()` (B, T, vocab_size) and targets (B, T), checked before it is called.
at::Tensor next_token_loss(const DecoderSizes& sizes, const at::Tensor& ids, const at::Tensor& targets,
                           const std::function<at::Tensor()>& logits);

// An empty cache for layers like `attention`, on the device of `weight` and in its dtype (under autocast,
// autocast's): a ring if every layer has a window (the largest has `window` tokens, 0: not every one has) and
// there is no limit; otherwise a dense one for `capacity` tokens, or context_length if that is 0.
std::unique_ptr<KVCache> empty_cache(const DecoderSizes& sizes, const TransformerAttentionImpl& attention,
                                     const at::Tensor& weight, int64_t batch, int64_t capacity,
                                     int64_t window);

}  // namespace attentive
