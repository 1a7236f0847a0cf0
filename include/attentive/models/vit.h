#pragma once

#include <concepts>

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include <attentive/modules/module.h>
#include <attentive/modules/norms.h>
#include <attentive/modules/transformer_blocks.h>
#include <attentive/notebooks/vision_transformer.h>

namespace attentive {

/// Options of `ViT`.
struct ViTOptions {
  ViTOptions(int64_t image_size, int64_t patch_size, int64_t channels, int64_t num_classes)
      : image_size_(image_size), patch_size_(patch_size), channels_(channels), num_classes_(num_classes) {}

  TORCH_ARG(int64_t, image_size);  ///< height and width in pixels
  TORCH_ARG(int64_t, patch_size);  ///< height and width of a patch; divides image_size
  TORCH_ARG(int64_t, channels);
  TORCH_ARG(int64_t, num_classes);   ///< 0: no classifier
  TORCH_ARG(int64_t, emb_dim) = 64;  ///< features of a patch; a multiple of num_heads
  TORCH_ARG(int64_t, num_heads) = 4;
  TORCH_ARG(int64_t, num_layers) = 4;
  TORCH_ARG(double, dropout) = 0.0;  ///< probability for embeddings, attention weights and residual branches
  TORCH_ARG(int64_t, hidden_dim) = 0;  ///< features inside the feed-forward layer; 0: 4 * emb_dim
  TORCH_ARG(Activation, activation) = Activation::GeluTanh;  ///< pretrained models use Gelu
  TORCH_ARG(double, eps) = 1e-5;  ///< added to the variance in the norms; pretrained models use 1e-12
  /// Whether a second learned token follows the class token (DeiT).
  TORCH_ARG(bool, distillation_token) = false;
  TORCH_ARG(bool, qkv_bias) = true;  ///< on the projections to queries, keys and values

  ATTENTIVE_OPTIONS(image_size_, patch_size_, channels_, num_classes_, emb_dim_, num_heads_, num_layers_,
                    dropout_, hidden_dim_, activation_, eps_, distillation_token_, qkv_bias_);
};

/// One pre-norm encoder block of a `ViT`: `FusedSelfAttention` and `FeedForward`.
class ViTBlockImpl : public Module<ViTBlockImpl> {
 public:
  static constexpr const char* kName = "ViTBlock";
  explicit ViTBlockImpl(ViTOptions options_) : options(options_) { build(); }
  /// Never compiles; its message says where the sizes belong.
  template <class... Others>
  explicit ViTBlockImpl(std::integral auto, Others&&...) : ViTBlockImpl(ViTOptions(0, 0, 0, 0)) {
    static_assert(sizeof...(Others) > sizeof...(Others),
                  "ViTBlock takes its sizes as options: ViTBlock block(attentive::ViTOptions(image_size, "
                  "patch_size, channels, num_classes).emb_dim(64))");
  }

  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  ViTOptions options;
  LayerNorm norm1{nullptr};
  FusedSelfAttention attn{nullptr};
  LayerNorm norm2{nullptr};
  FeedForward mlp{nullptr};
};
using ViTBlock = ModuleHolder<ViTBlockImpl>;

/// A vision transformer that classifies images: patches, a class token, learned positions, encoder blocks,
/// and a linear classifier of the class token.
///
///   images (B, channels, image_size, image_size), dtype and device of the parameters -> (B, num_classes)
///
/// Without a classifier (num_classes 0), the result is its input, (B, emb_dim): the class token's hidden
/// state after the last norm.
///
/// Parameters cls_token (1, 1, emb_dim), pos_embed (1, patches + 1, emb_dim), patch_embed, blocks.N.{norm1,
/// attn.{qkv, proj}, norm2, mlp}, norm, head. With distillation_token also dist_token (1, 1, emb_dim), and
/// pos_embed has patches + 2 rows: for the class token, the distillation token and the patches. The pixels of
/// a patch are in channel-major, then row-major order. Throws c10::ValueError for images of another shape.
/// Memory: O(B (patches + 1) emb_dim num_layers). Source: Dosovitskiy et al. 2021, "An Image is Worth 16x16
/// Words"; Touvron et al. 2021, "Training data-efficient image transformers".
///
///   attentive::ViT model(attentive::ViTOptions(8, 2, 1, 10));
///   auto logits = model->forward(images);  // (32, 1, 8, 8) -> (32, 10)
class ViTImpl : public Module<ViTImpl> {
 public:
  static constexpr const char* kName = "ViT";
  explicit ViTImpl(ViTOptions options_) : options(options_) { build(); }
  /// Never compiles; its message says where the sizes belong.
  template <class... Others>
  explicit ViTImpl(std::integral auto, Others&&...) : ViTImpl(ViTOptions(0, 0, 0, 0)) {
    static_assert(
        sizeof...(Others) > sizeof...(Others),
        "ViT takes its sizes as options: ViT model(attentive::ViTOptions(image_size, patch_size, channels, "
        "num_classes).emb_dim(64))");
  }

  void reset() override;
  at::Tensor forward(const at::Tensor& images);
  /// The hidden states of all tokens after the last norm, (B, patches + 1 or 2, emb_dim): the class token,
  /// the distillation token if there is one, the patches.
  at::Tensor hidden(const at::Tensor& images);

  int64_t num_patches() const;

  ViTOptions options;
  at::Tensor cls_token, dist_token, pos_embed;  ///< dist_token is undefined without its option
  torch::nn::Linear patch_embed{nullptr};
  torch::nn::ModuleList blocks{nullptr};
  LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};  ///< empty without classes

 private:
  at::Tensor embed(const at::Tensor& images);
  at::Tensor encode(const at::Tensor& images);
};
using ViT = ModuleHolder<ViTImpl>;

/// Cuts images into square patches: (B, C, H, W) -> (B, (H / patch) (W / patch), C patch patch). Patches are
/// in row-major order, the pixels of a patch in channel-major, then row-major order. Throws c10::ValueError
/// unless patch divides H and W.
///
///   auto patches = attentive::image_patches(images, 16);
at::Tensor image_patches(const at::Tensor& images, int64_t patch);

}  // namespace attentive
