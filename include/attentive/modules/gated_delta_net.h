#pragma once

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <attentive/cache/delta_cache.h>
#include <attentive/modules/module.h>
#include <attentive/modules/norms.h>

namespace attentive {

/// Options of `GatedDeltaNet`.
struct GatedDeltaNetOptions {
  GatedDeltaNetOptions(int64_t emb_dim, int64_t num_heads) : emb_dim_(emb_dim), num_heads_(num_heads) {}

  TORCH_ARG(int64_t, emb_dim);            ///< features of a token, in and out
  TORCH_ARG(int64_t, num_heads);          ///< value heads
  TORCH_ARG(int64_t, num_key_heads) = 0;  ///< heads of queries and keys; divides num_heads; 0: num_heads
  TORCH_ARG(int64_t, key_dim) = 128;      ///< features of a query and a key
  TORCH_ARG(int64_t, value_dim) = 128;    ///< features of a value
  TORCH_ARG(int64_t, kernel) = 4;         ///< tokens that the convolution reads, the current one included
  TORCH_ARG(double, eps) = 1e-6;          ///< of the output norm

  ATTENTIVE_OPTIONS(emb_dim_, num_heads_, num_key_heads_, key_dim_, value_dim_, kernel_, eps_);
};

/// A layer that mixes tokens by the gated delta rule: a short causal convolution per channel, then a matrix
/// per head that each token decays and corrects (`gated_delta_rule`), a norm of its output, and a gate.
///
///   x (B, T, emb_dim) or (T, emb_dim) -> the same shape, dtype and device of the parameters
///
/// Parameters dt_bias and A_log (num_heads), conv1d.weight, in_proj_qkvz.weight, in_proj_ba.weight,
/// norm.weight, out_proj.weight: names, shapes and draws of transformers' `Qwen3NextGatedDeltaNet`. Queries
/// and keys have norm 1. Token t decays the matrix of a head by exp(-exp(A_log) softplus(a_t + dt_bias)), and
/// corrects it by sigmoid(b_t) of its error. Time is O(T), and there is no maximum length.
/// Throws c10::ValueError for another shape, c10::TypeError for another dtype.
/// Memory: O(B T (emb_dim + num_heads value_dim)). Source: Yang et al. 2025, "Gated Delta Networks".
///
///   attentive::GatedDeltaNet net(attentive::GatedDeltaNetOptions(1024, 16));
///   auto y = net->forward(x);
class GatedDeltaNetImpl : public Module<GatedDeltaNetImpl> {
 public:
  static constexpr const char* kName = "GatedDeltaNet";
  GatedDeltaNetImpl(int64_t emb_dim, int64_t num_heads)
      : GatedDeltaNetImpl(GatedDeltaNetOptions(emb_dim, num_heads)) {}
  explicit GatedDeltaNetImpl(GatedDeltaNetOptions options_) : options(options_) { build(); }

  void reset() override;

  /// keep: (B, T), or (T) for x without a batch, bool; undefined: all. A token whose keep is false is
  /// padding: it is read as zeros, may hold NaN, and leaves the matrices as they are.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& keep = {});
  /// x (T, emb_dim) packs sequences, of which sequence n has the tokens offsets[n] to offsets[n + 1] - 1, as
  /// in `gated_delta_rule`.
  at::Tensor forward_packed(const at::Tensor& x, const at::Tensor& offsets);
  /// Like `forward`, for tokens that follow those that the cache has seen. Works without gradients. Throws
  /// c10::ValueError for a cache of other sizes than `cache_options` has.
  at::Tensor forward_cached(const at::Tensor& x, DeltaCache& cache, int64_t layer);

  /// The options of a cache for `layers` such modules.
  DeltaCacheOptions cache_options(int64_t layers, int64_t batch) const;

  int64_t num_key_heads() const {
    return options.num_key_heads() == 0 ? options.num_heads() : options.num_key_heads();
  }

  GatedDeltaNetOptions options;
  at::Tensor dt_bias, A_log;
  torch::nn::Conv1d conv1d{nullptr};
  torch::nn::Linear in_proj_qkvz{nullptr}, in_proj_ba{nullptr}, out_proj{nullptr};
  RMSNorm norm{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())})

  at::Tensor run(const at::Tensor& x, const at::Tensor& keep, const at::Tensor& offsets,
                 DeltaCache::Layer* state);
};
using GatedDeltaNet = ModuleHolder<GatedDeltaNetImpl>;

}  // namespace attentive
