#pragma once

// Functions that decoder-only language models share. Every error begins with `caller`.

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/container/modulelist.h>

#include <attentive/cache/kv_cache.h>
#include <attentive/functional/activation_checkpoint.h>
#include <attentive/models/generate.h>
#include <attentive/modules/transformer_attention.h>

namespace attentive {

/// Keeps a module in evaluation mode for the lifetime of this object.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : module_(module), training_(module.is_training()) {
    module_.eval();
  }
  ~EvaluationMode() { module_.train(training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  torch::nn::Module& module_;
  bool training_;
};

struct DecoderSizes {
  const char* caller;
  int64_t vocab_size, num_layers, context_length;  // context_length 0: no limit
};

/// A batch of ids whose rows may have padding.
struct PaddedRows {
  /// Throws unless lengths are integers (B) in [1, T]. Columns that are padding in every row are left out
  /// unless `whole`.
  PaddedRows(const char* caller, const at::Tensor& ids, const Padding& padding, bool whole = false);

  /// Hides padding before a row; padding after it is hidden by causal attention.
  Mask mask() const { return starts.defined() ? Mask::key_keep(real) : Mask(); }
  /// Logits of all columns of the given ids, those left out included.
  at::Tensor restored(const at::Tensor& logits, Logits which) const;
  /// The targets of the columns of `ids`, of which those of padding do not count.
  at::Tensor targets_of(const at::Tensor& targets) const;

  at::Tensor ids;     ///< (B, T'); 0 where there is padding
  at::Tensor real;    ///< (B, T') bool; undefined without padding
  at::Tensor starts;  ///< (B) the padding before each row; undefined: none
  at::Tensor ends;    ///< (B) the ends of rows that padding follows; undefined: T'
  at::Tensor given;   ///< (B, T)
  int64_t first = 0;  ///< the column of `given` with which `ids` begins
};

/// Throws unless ids are integers (B, T) inside the vocabulary that end within the context, and the cache, if
/// any, has the model's number of layers. Returns the position of the first token.
int64_t check_ids(const DecoderSizes& sizes, const at::Tensor& ids, const KVCache* cache);

/// The positions (B, T) of tokens of which the first is number `first`, padding included; those of padding
/// are 0. starts: (B) the padding before each row.
at::Tensor positions_after(const at::Tensor& starts, int64_t first, int64_t tokens);

/// Selects the rows of x (B, T, features) for which logits are requested.
at::Tensor tokens_with_logits(const at::Tensor& x, Logits which, const PaddedRows& rows);

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
at::Tensor next_token_loss(const DecoderSizes& sizes, const PaddedRows& rows, const at::Tensor& targets,
                           const LogitHead& head, const std::function<at::Tensor()>& features);

/// An empty cache for layers like `attention`, on the device of `weight` and in its dtype (under autocast,
/// autocast's dtype). It is a ring if `window` > 0 and there is no limit of the context; otherwise a dense
/// cache for `capacity` tokens, or for context_length if that is 0. window: the largest window if every layer
/// has one, otherwise 0.
std::unique_ptr<KVCache> empty_cache(const DecoderSizes& sizes, const TransformerAttentionImpl& attention,
                                     const at::Tensor& weight, int64_t batch, int64_t capacity,
                                     int64_t window);

/// Calls call(block, x) for each `Block` in turn. With every > 0 and gradients, groups of `every` blocks keep
/// only their input (`activation_checkpoint`). `call` is copied, and must hold what it uses.
template <class Block, class Call>
at::Tensor run_blocks(const torch::nn::ModuleListImpl& blocks, at::Tensor x, int64_t every,
                      const Call& call) {
  const auto count = static_cast<int64_t>(blocks.size());
  const bool checkpoints = every > 0 && at::GradMode::is_enabled();
  const auto step = checkpoints ? every : 1;
  for (int64_t first = 0; first < count; first += step) {
    std::vector<std::shared_ptr<torch::nn::Module>> group;
    for (int64_t i = first; i < std::min(count, first + step); ++i)
      group.push_back(blocks.ptr(static_cast<size_t>(i)));
    const auto run = [group, call](at::Tensor y) {
      for (const auto& block : group) y = call(*block->template as<Block>(), y);
      return y;
    };
    x = checkpoints ? activation_checkpoint(run, x, {.modules = group}) : run(x);
  }
  return x;
}

}  // namespace attentive
