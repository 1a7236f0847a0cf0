#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/files/state_dict.h>
#include <attentive/models/bert.h>
#include <attentive/models/vit.h>
#include <attentive/modules/module.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/gradcheck.h"
#include "support/module_suite.h"
#include "support/parity_cases.h"

using namespace attentive;
using attentive::test::type_error;
using attentive::test::value_error;

namespace {

BertOptions bert() {
  return BertOptions(13, 9, 8, 2, 2).hidden_dim(6).masked_lm(true).eps(1e-3);
}

BertOptions roberta() {
  return bert().padding_id(1).token_types(1);
}

BertOptions albert() {
  return bert().embedding_dim(5).shared_layers(true).activation(Activation::GeluTanh);
}

at::Tensor example_words() {
  return at::arange(10).view({2, 5}).mul(3).add(2).remainder(13);
}

Bert seeded_bert(const BertOptions& options) {
  at::manual_seed(123);
  return Bert(options);
}

std::vector<std::string> keys_of(const Bert& model) {
  return model->named_parameters().keys();
}

}  // namespace

TEST_CASE("Bert equals transformers' BERT, RoBERTa and ALBERT on every recorded case", "[bert]") {
  for (const char* family : {"bert", "roberta", "albert"}) {
    test::check_cases("encoders#" + std::string(family) + "-*", 7);
  }
}

TEST_CASE("Bert's parameters are those that its options need", "[bert]") {
  const auto keys = keys_of(seeded_bert(bert()));
  CHECK(std::vector<std::string>(keys.begin(), keys.begin() + 7) ==
        std::vector<std::string>{"mlm_bias", "tok_emb.weight", "pos_emb.weight", "type_emb.weight",
                                 "emb_norm.scale", "emb_norm.shift", "blocks.0.att.W_query.weight"});
  CHECK(std::vector<std::string>(keys.end() - 6, keys.end()) ==
        std::vector<std::string>{"pooler.weight", "pooler.bias", "mlm_dense.weight", "mlm_dense.bias",
                                 "mlm_norm.scale", "mlm_norm.shift"});
  CHECK(keys.size() == 6 + 2 * 16 + 2 + 4);
  CHECK(keys_of(seeded_bert(bert().pooler(false).masked_lm(false))).size() == 5 + 2 * 16);
  CHECK(keys_of(seeded_bert(albert())).size() == 6 + 2 + 16 + 2 + 4);
  // ALBERT has its projection even if the two sizes are equal.
  CHECK(seeded_bert(bert().embedding_dim(8))->named_parameters().contains("emb_proj.weight"));
}

TEST_CASE("Bert's clone is whole and independent; a state dict and other dtypes keep its meaning", "[bert]") {
  for (const auto& options : {bert(), roberta(), albert()}) {
    auto model = seeded_bert(options);
    const auto ids = example_words();
    const auto want = model->forward(ids);
    Bert copy(std::dynamic_pointer_cast<BertImpl>(model->clone()));
    CHECK(bit_equal(copy->forward(ids).pooled, want.pooled));
    CHECK(bit_equal(copy->masked_lm_logits(want.hidden), model->masked_lm_logits(want.hidden)));
    {
      const at::NoGradGuard no_grad;
      for (auto& p : copy->parameters()) p.add_(1);
    }
    CHECK(bit_equal(model->forward(ids).hidden, want.hidden));
    CHECK_FALSE(bit_equal(copy->masked_lm_logits(want.hidden), model->masked_lm_logits(want.hidden)));

    std::optional<NoFirstWeights> guard(std::in_place);
    at::manual_seed(5);
    const auto expected = at::randn({3});
    at::manual_seed(5);
    Bert other(options);
    CHECK(bit_equal(at::randn({3}), expected));
    guard.reset();
    load_state_dict(*other, state_dict(*model));
    CHECK(bit_equal(other->forward(ids).hidden, want.hidden));
    other->to(at::kDouble);
    CHECK_WITHIN(want.hidden, other->forward(ids).hidden, {1e-5, 2e-6});
    other->to(at::kBFloat16);
    CHECK_WITHIN(other->forward(ids).hidden, want.hidden, {5e-2, 1e-2});
  }
}

TEST_CASE("Bert's gradients equal differences", "[bert]") {
  for (const auto& options : {bert(), albert()}) {
    auto model = seeded_bert(options);
    model->to(at::kDouble);
    const auto types = at::arange(10).view({2, 5}).remainder(2);
    const auto both = [&] {
      const auto output = model->forward(example_words(), types);
      return model->masked_lm_logits(output.hidden).sum() + output.pooled.square().sum();
    };
    CHECK(test::gradcheck_directions(both, model->parameters()) == "");
  }
}

TEST_CASE("Bert: a token that a mask hides reaches no other", "[bert]") {
  auto model = seeded_bert(bert());
  const auto ids = example_words();
  const auto keep = at::ones({2, 5}, at::kBool);
  keep[0].slice(0, 3).fill_(false);
  auto changed = ids.clone();
  changed[0][4] = 0;
  const auto mask = Mask::key_keep(keep);
  const auto a = model->forward(ids, {}, mask), b = model->forward(changed, {}, mask);
  CHECK(bit_equal(a.hidden[0].slice(0, 0, 4), b.hidden[0].slice(0, 0, 4)));
  CHECK(bit_equal(a.pooled, b.pooled));
  CHECK_FALSE(bit_equal(model->forward(ids).hidden, model->forward(changed).hidden));
  // A shorter item gives the same numbers alone, although every token sees the tokens after it.
  const auto alone = model->forward(ids.slice(0, 0, 1).slice(1, 0, 3)).hidden;
  CHECK_CLOSE(a.hidden.slice(0, 0, 1).slice(1, 0, 3), alone);
  const auto shorter = model->forward(ids.slice(1, 0, 3)).hidden;
  CHECK((shorter[1][0] - model->forward(ids).hidden[1][0]).abs().max().item<float>() > 1e-3);
}

TEST_CASE("Bert: positions after padding count real tokens alone", "[bert]") {
  auto model = seeded_bert(roberta());
  const auto ids = at::tensor({5, 6, 7, 5, 1, 6}).view({2, 3});
  const auto keep = ids.ne(1);
  const auto hidden = model->forward(ids, {}, Mask::key_keep(keep)).hidden;
  // Item 1 is "5 6" with padding between; its real tokens have the positions 2 and 3, as without the padding.
  const auto whole = model->forward(at::tensor({5, 6}).view({1, 2})).hidden[0];
  CHECK_CLOSE(hidden[1][0], whole[0]);
  CHECK_CLOSE(hidden[1][2], whole[1]);
  // The table ends at row 8: seven real tokens fit, with any amount of padding.
  CHECK(model->forward(at::ones({1, 20}, at::kLong)).hidden.size(1) == 20);
  model->forward(at::zeros({1, 7}, at::kInt));
  CHECK(value_error([&] {
          model->forward(at::zeros({1, 8}, at::kLong));
        }) == "Bert: expected positions in [0, 9), got 9");
}

TEST_CASE("Bert: a frozen token's row starts at zero and gets no gradient from being looked up", "[bert]") {
  const auto row_gradients = [](const BertOptions& options) {
    auto model = seeded_bert(options);
    CHECK((model->tok_emb->weight[1].abs().sum().item<float>() == 0) ==
          (options.frozen_id().has_value() || options.padding_id().has_value()));
    model->forward(at::tensor({5, 1, 7}).view({1, 3})).hidden.square().sum().backward();
    const auto row = [](const at::Tensor& weight) { return weight.grad()[1].abs().sum().item<float>() > 0; };
    CHECK(model->tok_emb->weight.grad()[5].abs().sum().item<float>() > 0);
    return std::pair(row(model->tok_emb->weight), row(model->pos_emb->weight));
  };
  CHECK(row_gradients(bert()) == std::pair(true, true));
  CHECK(row_gradients(bert().frozen_id(1)) == std::pair(false, true));
  CHECK(row_gradients(roberta()) == std::pair(false, false));
  // The head uses this row as well, and trains it.
  auto model = seeded_bert(bert().frozen_id(1));
  model->masked_lm_logits(model->forward(at::tensor({5, 1}).view({1, 2})).hidden).sum().backward();
  CHECK(model->tok_emb->weight.grad()[1].abs().sum().item<float>() > 0);
}

TEST_CASE("Bert drops in training alone, and trains after inference", "[bert]") {
  auto model = seeded_bert(bert().dropout(0.3));
  const auto ids = example_words();
  at::manual_seed(1);
  const auto a = model->forward(ids).hidden;
  at::manual_seed(1);
  CHECK(bit_equal(model->forward(ids).hidden, a));
  CHECK_FALSE(bit_equal(model->forward(ids).hidden, a));
  model->eval();
  {
    const c10::InferenceMode inference;
    CHECK(bit_equal(model->forward(ids).hidden, model->forward(ids).hidden));
  }
  model->train();
  model->forward(ids).pooled.sum().backward();
  CHECK(model->tok_emb->weight.grad().defined());
}

TEST_CASE("Bert: types that are not given are 0, and int32 is an integer", "[bert]") {
  auto model = seeded_bert(bert());
  const auto ids = example_words();
  const auto plain = model->forward(ids).hidden;
  CHECK(bit_equal(model->forward(ids, at::zeros_like(ids)).hidden, plain));
  CHECK(bit_equal(model->forward(ids.to(at::kInt), at::zeros({2, 5}, at::kInt)).hidden, plain));
  CHECK_FALSE(bit_equal(model->forward(ids, at::ones({2, 5}, at::kLong)).hidden, plain));
  CHECK_FALSE(seeded_bert(bert().pooler(false))->forward(ids).pooled.defined());
}

TEST_CASE("Bert refuses inputs and options without meaning, by name", "[bert]") {
  auto model = seeded_bert(bert().masked_lm(false));
  const auto refused = [&](const at::Tensor& ids, const at::Tensor& types = {}) {
    return value_error([&] { model->forward(ids, types); });
  };
  const auto ids = example_words();
  CHECK(refused(at::Tensor()) == "Bert: expected ids to be a tensor, got an undefined one");
  CHECK(refused(ids[0]) ==
        "Bert: expected ids as int64 or int32 of shape (B, T), got Long tensor of shape (5,)");
  CHECK(refused(at::randn({2, 5})) ==
        "Bert: expected ids as int64 or int32 of shape (B, T), got Float tensor of shape (2, 5)");
  CHECK(refused(at::zeros({2, 0}, at::kLong)) == "Bert: expected ids of at least one token, got (2, 0)");
  CHECK(refused(at::zeros({1, 10}, at::kLong)) == "Bert: expected at most context_length = 9 tokens, got 10");
  CHECK(refused(ids + 13) == "Bert: expected ids in [0, 13), got 24");
  CHECK(refused(ids, ids[0]) ==
        "Bert: expected token_types as int64 or int32 of shape (B, T), got Long tensor of shape (5,)");
  CHECK(refused(ids, ids.slice(1, 0, 4)) ==
        "Bert: expected token_types of shape (2, 5) like ids, got (2, 4)");
  CHECK(refused(ids, at::ones_like(ids) * 2) == "Bert: expected token_types in [0, 2), got 2");
  CHECK(value_error([&] {
          model->masked_lm_logits(at::randn({2, 5, 8}));
        }) == "Bert: expected the option masked_lm for logits of tokens, got a model without that head");
  auto whole = seeded_bert(bert());
  CHECK(value_error([&] {
          whole->masked_lm_logits(at::randn({2, 5, 7}));
        }) == "Bert: expected hidden of shape (B, T, 8) or (T, 8), got (2, 5, 7)");
  CHECK(type_error([&] {
          whole->masked_lm_logits(at::randn({2, 5, 8}, at::kDouble));
        }).starts_with("Bert: expected hidden of dtype"));

  CHECK(value_error([] { Bert(bert().num_heads(3)); }) ==
        "Bert: expected num_heads to divide emb_dim = 8, got 3");
  CHECK(value_error([] { Bert(bert().num_layers(0)); }) ==
        "Bert: expected num_layers in [1, 1048576], got 0");
  CHECK(value_error([] { Bert(bert().token_types(0)); }) == "Bert: expected token_types > 0, got 0");
  CHECK(value_error([] { Bert(bert().hidden_dim(-1)); }) == "Bert: expected hidden_dim > 0, got -1");
  CHECK(value_error([] { Bert(bert().embedding_dim(-5)); }) == "Bert: expected embedding_dim > 0, got -5");
  CHECK(value_error([] { Bert(bert().padding_id(9)); }) == "Bert: expected padding_id in [0, 9), got 9");
  CHECK(value_error([] { Bert(bert().frozen_id(-1)); }) == "Bert: expected frozen_id in [0, 13), got -1");
  CHECK(value_error([] { Bert(bert().eps(-1)); }) ==
        "Bert: expected eps to be finite and not negative, got -1");
  CHECK(value_error([] { Bert(bert().dropout(2)); }).starts_with("Bert: expected dropout"));
}

TEST_CASE("Bert's classifier needs its parts", "[bert][errors]") {
  const auto ids = example_words();
  auto plain = seeded_bert(bert());
  CHECK(value_error([&] { plain->label_logits(plain->forward(ids)); }) ==
        "Bert: expected the option head for logits of labels, got a model without a classifier");
  const auto base = BertOptions(13, 9, 8, 2, 1).num_labels(3).head(BertHead::Sequence);
  CHECK(value_error([&] { Bert(BertOptions(base).pooler(false)); }) ==
        "Bert: expected a pooler for head = sequence, got none");
  CHECK(value_error([&] { Bert(BertOptions(base).masked_lm(true)); }) ==
        "Bert: expected masked_lm or head = sequence, got both");
  CHECK(value_error([&] { Bert(BertOptions(base).num_labels(0)); }) ==
        "Bert: expected num_labels > 0, got 0");
  CHECK(value_error([&] {
          Bert(BertOptions(base).head_dropout(2));
        }).starts_with("Bert: expected head_dropout"));
  auto texts = seeded_bert(base);
  const auto out = texts->forward(ids);
  CHECK(texts->label_logits(out).sizes() == at::IntArrayRef({2, 3}));
  CHECK(value_error([&] {
          texts->label_logits({out.hidden, {}});
        }) == "Bert: expected pooled to be a tensor, got an undefined one");
  auto roberta = seeded_bert(BertOptions(base).padding_id(1).pooler(false));
  CHECK(value_error([&] {
          roberta->label_logits({out.hidden[0], {}});
        }) == "Bert: expected hidden of shape (B, T, 8), got (5, 8)");
  // In training, dropout applies to the classifier's input.
  for (const auto& options : {BertOptions(base), BertOptions(base).head(BertHead::Tokens),
                              BertOptions(base).padding_id(1).pooler(false)}) {
    auto model = seeded_bert(BertOptions(options).head_dropout(1));
    const auto& bias = model->classifier->bias;
    const auto logits = model->label_logits(model->forward(ids));
    CHECK(bit_equal(logits, bias.expand_as(logits)));
    model->eval();
    const auto kept = model->label_logits(model->forward(ids));
    CHECK_FALSE(kept.equal(bias.expand_as(kept)));
  }
}

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
