#pragma once

// Functions that decoder-only language models share. Every error begins with `caller`.

#include <functional>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include <attentive/cache/kv_cache.h>
#include <attentive/models/logits.h>
#include <attentive/modules/transformer_attention.h>

namespace attentive {

struct DecoderSizes {
  const char* caller;
  int64_t vocab_size, num_layers, context_length;  // context_length 0: no limit
};

/// Throws unless ids are integers (B, T) inside the vocabulary that end within the context, and the cache, if
/// any, has the model's number of layers. Returns the position of the first token.
int64_t check_ids(const DecoderSizes& sizes, const at::Tensor& ids, const KVCache* cache);

/// Selects the rows of x (B, T, features) for which logits are requested.
at::Tensor tokens_with_logits(const at::Tensor& x, Logits which);

/// The head of a language model: logits = x weightᵀ, with an optional softcap.
struct LogitHead {
  at::Tensor weight;  ///< (vocab_size, features)
  std::optional<double> softcap = std::nullopt;

  at::Tensor logits(const at::Tensor& x) const;
};

/// The size of all logits, in bytes, above which a loss computes them in chunks. They then need a share of
/// the memory, but are summed in another order, so that a small model keeps the bits of the composed loss.
constexpr int64_t kMostLogitBytes = 128 << 20;

/// The target of a token that does not count, as in PyTorch's own losses.
constexpr int64_t kIgnoredTarget = -100;

/// The mean cross-entropy of the logits of `features()` (B, T, features) and of those targets (B, T) that are
/// not `kIgnoredTarget`. Ids and targets are checked before `features` is called.
at::Tensor next_token_loss(const DecoderSizes& sizes, const at::Tensor& ids, const at::Tensor& targets,
                           const LogitHead& head, const std::function<at::Tensor()>& features);

/// An empty cache for layers like `attention`, on the device of `weight` and in its dtype (under autocast,
/// autocast's dtype). It is a ring if `window` > 0 and there is no limit of the context; otherwise a dense
/// cache for `capacity` tokens, or for context_length if that is 0. window: the largest window if every layer
/// has one, otherwise 0.
std::unique_ptr<KVCache> empty_cache(const DecoderSizes& sizes, const TransformerAttentionImpl& attention,
                                     const at::Tensor& weight, int64_t batch, int64_t capacity,
                                     int64_t window);

}  // namespace attentive
