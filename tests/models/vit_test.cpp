#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/models/vit.h>
#include <attentive/modules/module.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"
#include "support/parity_cases.h"

using namespace attentive;
using attentive::test::value_error;

namespace {

ViTOptions small_vit() {
  return ViTOptions(6, 2, 2, 5).emb_dim(8).num_heads(2).num_layers(1).dropout(0.2);
}

}  // namespace

TEST_CASE("image_patches cuts row by row, a patch channel by channel", "[vit]") {
  const auto images = at::arange(2 * 4 * 4).view({1, 2, 4, 4}).to(at::kFloat);
  const auto patches = image_patches(images, 2);
  CHECK(patches.sizes() == at::IntArrayRef({1, 4, 8}));
  CHECK(bit_equal(patches[0][1], test::table({{2, 3, 6, 7, 18, 19, 22, 23}})[0]));
  CHECK(bit_equal(patches[0][2], test::table({{8, 9, 12, 13, 24, 25, 28, 29}})[0]));
  // The patch embedding equals a convolution whose stride is its kernel size.
  const auto weight = at::randn({3, 2, 2, 2});
  const auto convolved = at::conv2d(images, weight, {}, 2).flatten(2).transpose(1, 2);
  CHECK_WITHIN(at::linear(patches, weight.flatten(1)), convolved, {1e-5, 1e-5});
  CHECK(value_error([&] { return image_patches(images, 3); }) ==
        "image_patches: expected patch to divide 4 and 4, got 3");
}

TEST_CASE("ViT is a torch::nn citizen", "[vit]") {
  test::ModuleSuite<ViT> suite;
  suite.make = [] { return ViT(small_vit()); };
  suite.input_shape = {2, 2, 6, 6};
  suite.keys = {"cls_token",
                "pos_embed",
                "patch_embed.weight",
                "patch_embed.bias",
                "blocks.0.norm1.scale",
                "blocks.0.norm1.shift",
                "blocks.0.attn.qkv.weight",
                "blocks.0.attn.qkv.bias",
                "blocks.0.attn.proj.weight",
                "blocks.0.attn.proj.bias",
                "blocks.0.norm2.scale",
                "blocks.0.norm2.shift",
                "blocks.0.mlp.layers.0.weight",
                "blocks.0.mlp.layers.0.bias",
                "blocks.0.mlp.layers.2.weight",
                "blocks.0.mlp.layers.2.bias",
                "norm.scale",
                "norm.shift",
                "head.weight",
                "head.bias"};
  suite.names();
  suite.clone_keeps_random_state();
  suite.save_and_load();
  suite.dtypes();
  suite.eval_and_train();
  suite.gradient_matches_differences();
  suite.in_sequential();
  suite.prints();
}

TEST_CASE("ViT equals transformers' ViT and DeiT on every recorded case", "[vit]") {
  test::check_cases("encoders#vit-*", 5);
  test::check_cases("encoders#deit-*", 5);
}

TEST_CASE("ViT's options change the layers they name, and no draw of the others", "[vit]") {
  const auto seeded = [](const ViTOptions& options) {
    at::manual_seed(3);
    return ViT(options);
  };
  const auto plain = seeded(small_vit());
  CHECK(plain->blocks->at<ViTBlockImpl>(0).mlp->options.hidden_dim() == 32);
  auto other = seeded(small_vit().hidden_dim(6).activation(Activation::Gelu).eps(0.5));
  const auto& block = other->blocks->at<ViTBlockImpl>(0);
  CHECK(block.mlp->options.hidden_dim() == 6);
  CHECK(block.mlp->options.activation() == Activation::Gelu);
  for (const auto& norm : {block.norm1, block.norm2, other->norm}) CHECK(norm->options.eps() == 0.5);
  CHECK(bit_equal(other->pos_embed, plain->pos_embed));

  auto distilled = seeded(small_vit().distillation_token(true));
  CHECK(distilled->named_parameters().keys()[1] == "dist_token");
  CHECK(distilled->pos_embed.size(1) == 11);
  CHECK_FALSE(plain->dist_token.defined());
  CHECK(plain->pos_embed.size(1) == 10);
  distilled->eval();
  const auto images = at::randn({1, 2, 6, 6});
  const auto before = distilled->forward(images);
  {
    const at::NoGradGuard no_grad;
    distilled->dist_token.add_(1);
  }
  CHECK_FALSE(bit_equal(distilled->forward(images), before));  // the class token attends to it
  CHECK(value_error([] { ViT(small_vit().eps(-1)); }) ==
        "ViT: expected eps to be finite and not negative, got -1");
  CHECK(value_error([] { ViT(small_vit().hidden_dim(-1)); }) == "ViT: expected hidden_dim > 0, got -1");
}

TEST_CASE("ViT draws nothing where its weights are loaded next", "[vit]") {
  at::manual_seed(5);
  const auto expected = at::randn({3});
  at::manual_seed(5);
  {
    const NoFirstWeights guard;
    const ViT model(small_vit().distillation_token(true));
  }
  CHECK(bit_equal(at::randn({3}), expected));
}

TEST_CASE("ViT sees every patch and where it stands", "[vit]") {
  at::manual_seed(1);
  ViT model(ViTOptions(6, 2, 1, 5).emb_dim(8).num_heads(2).num_layers(2));
  model->eval();
  const auto images = at::randn({1, 1, 6, 6});
  const auto y = model->forward(images);
  for (int64_t patch = 0; patch < 9; ++patch) {
    auto changed = images.clone();
    changed[0][0][patch / 3 * 2][patch % 3 * 2] += 1;
    CHECK_FALSE(bit_equal(model->forward(changed), y));
  }
  CHECK_FALSE(bit_equal(model->forward(images.flip(3)), y));
}

TEST_CASE("ViT refuses images and options without meaning, by name", "[vit]") {
  ViT model(small_vit());
  CHECK(value_error([&] {
          return model->forward(at::randn({1, 1, 6, 6}));
        }) == "ViT: expected images of shape (B, 2, 6, 6), got (1, 1, 6, 6)");
  CHECK(value_error([&] {
          return model->forward(at::randn({2, 6, 6}));
        }) == "ViT: expected images of shape (B, 2, 6, 6), got (2, 6, 6)");
  CHECK(value_error([] { return ViT(ViTOptions(7, 2, 1, 5)); }) ==
        "ViT: expected patch_size to divide image_size = 7, got 2");
  CHECK(value_error([] { return ViT(small_vit().num_heads(3)); }) ==
        "ViT: expected num_heads to divide emb_dim = 8, got 3");
}
