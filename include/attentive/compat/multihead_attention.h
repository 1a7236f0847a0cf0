#pragma once

#include <optional>
#include <tuple>
#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <attentive/core/mask.h>
#include <attentive/modules/module.h>

/// Modules that keep PyTorch's conventions: sequence first unless `batch_first`, and masks in which **true
/// hides**. Everywhere else in this package true means "may attend".
namespace attentive::compat {

/// Options of `MultiheadAttention`: the arguments of Python's constructor.
struct MultiheadAttentionOptions {
  MultiheadAttentionOptions(int64_t embed_dim, int64_t num_heads)
      : embed_dim_(embed_dim), num_heads_(num_heads) {}

  TORCH_ARG(int64_t, embed_dim);  ///< features of query and output; num_heads divides it
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(double, dropout) = 0.0;        ///< probability of dropping an attention weight in training
  TORCH_ARG(bool, bias) = true;            ///< biases of the input and output projections
  TORCH_ARG(bool, add_bias_kv) = false;    ///< append a learned key and value to the sequence
  TORCH_ARG(bool, add_zero_attn) = false;  ///< append a key and value of zeros to the sequence
  TORCH_ARG(std::optional<int64_t>, kdim) = std::nullopt;  ///< features of key; not set: embed_dim
  TORCH_ARG(std::optional<int64_t>, vdim) = std::nullopt;  ///< features of value; not set: embed_dim
  TORCH_ARG(bool, batch_first) = false;  ///< (N, L, E) instead of (L, N, E); no effect on unbatched input

  ATTENTIVE_OPTIONS(embed_dim_, num_heads_, dropout_, bias_, add_bias_kv_, add_zero_attn_, kdim_, vdim_,
                    batch_first_);
};

/// Python's `torch.nn.MultiheadAttention`: its arguments, masks, parameter names and initial weights for a
/// seed.
///
///   query (L, N, E), key (S, N, kdim), value (S, N, vdim); (N, L, E) … with batch_first; (L, E) … unbatched
///   -> output in the layout of query; weights (N, L, S), or (N, H, L, S) with average_attn_weights = false,
///      without N if unbatched; undefined with need_weights = false
///
///   key_padding_mask  (N, S), or (S) unbatched: bool, **true hides the key**; floating: added to the scores
///   attn_mask         (L, S) or (N * H, L, S), (H, L, S) unbatched: bool, **true hides the pair**; floating:
///                     added to the scores, and gradients flow to it
///   need_weights      the returned weights are those *after* dropout, as in Python
///   is_causal         Python's hint that attn_mask, which must be given, is causal: with need_weights or a
///                     key_padding_mask attn_mask decides and the hint does nothing; without either, the
///                     mask's content is ignored and query i sees keys 0 .. i (top-left, also for L != S)
///
/// Parameters: in_proj_weight (3E, E), or q_proj_weight, k_proj_weight, v_proj_weight if kdim or vdim differ
/// from embed_dim; in_proj_bias (3E); bias_k, bias_v (1, 1, E); out_proj.weight, out_proj.bias.
///
/// Differs from Python where Python gives NaN or nothing: a query without any key has zero weights and zero
/// context, so its output is the bias of out_proj, with and without weights; a hidden key may hold NaN; masks
/// of another floating dtype than the query's are accepted; is_causal = true without attn_mask is refused in
/// every mode. Differs from C++ `torch::nn::MultiheadAttention`, which reads a bool attn_mask as numbers 0/1
/// and lacks batch_first, unbatched input and 3-D masks.
///
/// Dropout uses the backend's own random stream; under `DropoutStreamGuard(DropoutStream::Aten)` it drops
/// what Python drops for the same seed. Throws c10::ValueError for a bad option, shape, rank or device and
/// c10::TypeError for a bad dtype. Memory: O(N H L S) if weights are asked for, else as `attention`.
/// Source: PyTorch 2.11, torch.nn.MultiheadAttention.
///
///   attentive::compat::MultiheadAttention mha(
///       attentive::compat::MultiheadAttentionOptions(512, 8).batch_first(true));
///   auto [output, weights] = mha->forward(x, x, x, /*key_padding_mask=*/padding);
class MultiheadAttentionImpl : public Module<MultiheadAttentionImpl> {
 public:
  static constexpr const char* kName = "compat::MultiheadAttention";
  MultiheadAttentionImpl(int64_t embed_dim, int64_t num_heads)
      : MultiheadAttentionImpl(MultiheadAttentionOptions(embed_dim, num_heads)) {}
  explicit MultiheadAttentionImpl(MultiheadAttentionOptions options_) : options(std::move(options_)) {
    build();
  }

  void reset() override;
  /// Draws the initial weights that Python draws: Xavier weights, and biases of zero.
  void reset_parameters();

  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& query, const at::Tensor& key,
                                             const at::Tensor& value, const at::Tensor& key_padding_mask = {},
                                             bool need_weights = true, const at::Tensor& attn_mask = {},
                                             bool average_attn_weights = true, bool is_causal = false);

  MultiheadAttentionOptions options;
  at::Tensor in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias, bias_k, bias_v;
  torch::nn::Linear out_proj{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({3, torch::nn::AnyValue(at::Tensor())}, {4, torch::nn::AnyValue(true)},
                           {5, torch::nn::AnyValue(at::Tensor())}, {6, torch::nn::AnyValue(true)},
                           {7, torch::nn::AnyValue(false)})

  bool packed() const;  // one in_proj_weight for query, key and value
  std::tuple<at::Tensor, at::Tensor, at::Tensor> project_inputs(const at::Tensor& query,
                                                                const at::Tensor& key,
                                                                const at::Tensor& value) const;
};
using MultiheadAttention = ModuleHolder<MultiheadAttentionImpl>;

}  // namespace attentive::compat
