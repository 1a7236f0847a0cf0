#pragma once

#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/modules/module.h>

namespace attentive {

/// Options of `SharedHeadAttention`, in the order of the blog's constructor.
struct SharedHeadAttentionOptions {
  SharedHeadAttentionOptions(int64_t embed_size, int64_t heads) : embed_size_(embed_size), heads_(heads) {}

  TORCH_ARG(int64_t, embed_size);  ///< features of a token, in and out; heads divides it
  TORCH_ARG(int64_t, heads);
  /// How the heads attend. Its `dropout_p` must stay 0.
  TORCH_ARG(AttentionOptions, attention) = {};

  ATTENTIVE_OPTIONS(embed_size_, heads_, attention_);
};

/// Multi-head attention whose heads share three small projections, (head_dim, head_dim) each, for values,
/// keys and queries.
///
///   values, keys (B, S, embed_size), query (B, L, embed_size) -> (B, L, embed_size); B may be absent from
///   all
///
/// The order of the arguments is values, keys, query. Parameters values, keys, queries (no bias), fc_out:
/// names and random draws of the blog. The published forward does not run (it projects before it splits) and,
/// once it does, attends over the heads of one token and ignores its mask; here the heads are split first,
/// tokens attend to tokens, and the mask applies. A query that a mask leaves without keys yields the bias of
/// fc_out. Throws c10::ValueError for other shapes, c10::TypeError for another dtype. Memory: O(B H L) beyond
/// input and output with a fused backend, O(B H L S) with the reference. Source: the attention-mechanism
/// blog, `MultiHeadAttention(embed_size, heads)`.
///
///   attentive::SharedHeadAttention attention(256, /*heads=*/8);
///   auto y = attention->forward(memory, memory, x, attentive::Mask::key_lengths(lengths));
class SharedHeadAttentionImpl : public Module<SharedHeadAttentionImpl> {
 public:
  static constexpr const char* kName = "SharedHeadAttention";
  SharedHeadAttentionImpl(int64_t embed_size, int64_t heads)
      : SharedHeadAttentionImpl(SharedHeadAttentionOptions(embed_size, heads)) {}
  explicit SharedHeadAttentionImpl(SharedHeadAttentionOptions options_) : options(std::move(options_)) {
    build();
  }

  void reset() override;

  at::Tensor forward(const at::Tensor& values_, const at::Tensor& keys_, const at::Tensor& query,
                     const Mask& mask = {}) {
    return forward_with_weights(values_, keys_, query, mask, Weights::None).first;
  }
  /// Output and attention weights (B, H, L, S) or (H, L, S); costs O(B H L S) memory.
  std::pair<at::Tensor, at::Tensor> forward_with_weights(const at::Tensor& values, const at::Tensor& keys,
                                                         const at::Tensor& query, const Mask& mask = {},
                                                         Weights which = Weights::Clean);

  SharedHeadAttentionOptions options;
  torch::nn::Linear values{nullptr};
  torch::nn::Linear keys{nullptr};
  torch::nn::Linear queries{nullptr};
  torch::nn::Linear fc_out{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({3, torch::nn::AnyValue(Mask())})
};
using SharedHeadAttention = ModuleHolder<SharedHeadAttentionImpl>;

}  // namespace attentive
