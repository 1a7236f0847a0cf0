#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>
#include <attentive/models/gpt.h>
#include <attentive/parity/compare.h>

#include "models/decoder_suite.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/gradcheck.h"
#include "support/source_folder.h"

using namespace attentive;
using attentive::test::example_ids;
using attentive::test::value_error;

namespace {

GPTOptions book() {
  return GPTOptions(11, 8, 12, 3, 2).qkv_bias(true);
}

GPTOptions nano() {
  return GPTOptions(11, 8, 12, 3, 2).bias(false).tied(true).init(GPTInit::Gpt2);
}

GPTOptions rotary() {
  return GPTOptions(11, 0, 12, 3, 2).positions(GPTPositions::Rotary).num_kv_heads(1).window(4);
}

GPT seeded_gpt(const GPTOptions& options) {
  at::manual_seed(123);
  return GPT(options);
}

}  // namespace

TEST_CASE("GPT equals plain PyTorch: names, draws, logits, loss, gradients", "[gpt]") {
  const auto file = load_safetensors(test::source_folder() + "/tests/models/data/gpt.safetensors");
  for (const std::string name : {"book", "nano"}) {
    INFO(name);
    const auto options = name == "book" ? book() : nano();
    const auto golden = [&](const std::string& key) { return file.tensors.at(name + '.' + key); };
    auto model = seeded_gpt(options);
    const auto ids = example_ids();
    CHECK_WITHIN(model->forward(ids), golden("logits"), {1e-5, 2e-6});
    const auto loss = model->loss(ids, ids.mul(3).add(1).remainder(11));
    CHECK_WITHIN(loss, golden("loss"), {1e-6, 1e-6});
    loss.backward();
    size_t weights = 0;
    for (const auto& item : model->named_parameters()) {
      INFO(item.key());
      const bool normal = name == "nano" || item.key().ends_with("emb.weight");
      CHECK(same_draw(item.value(), golden("weight." + item.key()), normal ? Drawn::Normal : Drawn::Uniform));
      CHECK_WITHIN(item->grad(), golden("grad." + item.key()), {1e-5, 5e-6});
      ++weights;
    }
    size_t expected = 0;
    for (const auto& item : file.tensors) expected += item.first.starts_with(name + ".weight.");
    CHECK(weights == expected);
  }
}

TEST_CASE("GPT's clone is whole and independent, tied weights included", "[gpt]") {
  for (const auto& options : {book(), nano(), rotary()}) {
    auto model = seeded_gpt(options);
    at::manual_seed(5);
    const auto expected = at::randn({3});
    at::manual_seed(5);
    GPT copy(std::dynamic_pointer_cast<GPTImpl>(model->clone()));
    CHECK(bit_equal(at::randn({3}), expected));
    const auto ids = example_ids();
    CHECK(bit_equal(copy->forward(ids), model->forward(ids)));
    // Training the copy changes only the copy; with tied weights, the head changes with the embedding.
    copy->loss(ids, ids).backward();
    {
      const at::NoGradGuard no_grad;
      for (auto& p : copy->parameters()) p.sub_(p.grad());
    }
    CHECK(bit_equal(model->forward(ids), seeded_gpt(options)->forward(ids)));
    CHECK_FALSE(bit_equal(copy->forward(ids), model->forward(ids)));
    CHECK(copy->named_parameters().size() == model->named_parameters().size());
    CHECK(copy->named_parameters().contains("out_head.weight") == !options.tied());
  }
}

TEST_CASE("GPT keeps its meaning in other dtypes and through a state dict", "[gpt]") {
  for (const auto& options : {book(), nano(), rotary()}) {
    auto model = seeded_gpt(options);
    const auto ids = example_ids();
    auto other = GPT(options);
    load_state_dict(*other, state_dict(*model));
    CHECK(bit_equal(other->forward(ids), model->forward(ids)));
    other->to(at::kDouble);
    CHECK_WITHIN(model->forward(ids), other->forward(ids), {1e-5, 2e-6});
    other->to(at::kBFloat16);
    CHECK_WITHIN(other->forward(ids), model->forward(ids), {5e-2, 1e-2});
    other->to(at::kFloat);
    load_state_dict(*other, state_dict(*model));
    other->to(at::kHalf);
    CHECK_WITHIN(other->forward(ids), model->forward(ids), {6e-3, 2e-3});
  }
}

TEST_CASE("GPT's gradients equal differences", "[gpt]") {
  for (auto options : {book(), nano(), rotary()}) {
    auto model = seeded_gpt(options);
    model->to(at::kDouble);
    const auto ids = example_ids();
    CHECK(test::gradcheck_directions([&] { return model->forward(ids); }, model->parameters()) == "");
  }
}

TEST_CASE("GPT is causal, and its window ends where it should", "[gpt]") {
  auto model = seeded_gpt(rotary());  // window 4, two layers: token t depends on t - 6 .. t
  const auto ids = at::randint(11, {1, 20}, at::kLong);
  const auto before = model->forward(ids);
  auto changed = ids.clone();
  changed[0][10] = (ids[0][10] + 1).remainder(11);
  const auto same = (model->forward(changed) == before).all(2)[0];
  for (int64_t t = 0; t < 20; ++t) {
    INFO("token " << t);
    CHECK(same[t].item<bool>() == (t < 10 || t > 16));
  }
}

TEST_CASE("GPT drops in training alone", "[gpt]") {
  auto model = seeded_gpt(book().dropout(0.3));
  const auto ids = example_ids();
  at::manual_seed(1);
  const auto a = model->forward(ids);
  at::manual_seed(1);
  CHECK(bit_equal(model->forward(ids), a));
  CHECK_FALSE(bit_equal(model->forward(ids), a));
  model->eval();
  CHECK(bit_equal(model->forward(ids), model->forward(ids)));
}

TEST_CASE("GPT refuses ids and options without meaning, by name", "[gpt]") {
  auto model = seeded_gpt(book());
  const auto refused = [&](const at::Tensor& ids) {
    return value_error([&] { return model->forward(ids); });
  };
  CHECK(refused(at::arange(11, 12).view({1, 1})) == "GPT: expected ids in [0, 11), got 11");
  CHECK(refused(at::arange(-2, 3).view({1, 5})) == "GPT: expected ids in [0, 11), got -2");
  CHECK(refused(at::randint(11, {1, 9}, at::kLong)) ==
        "GPT: expected at most context_length = 8 tokens, got 9");
  CHECK(refused(at::arange(3)) ==
        "GPT: expected ids as int64 or int32 of shape (B, T), got Long tensor of shape (3,)");
  CHECK(refused(at::randn({1, 3})) ==
        "GPT: expected ids as int64 or int32 of shape (B, T), got Float tensor of shape (1, 3)");
  CHECK(refused({}) == "GPT: expected ids to be a tensor, got an undefined one");
  CHECK(model->forward(at::randint(11, {0, 3}, at::kLong)).sizes() == at::IntArrayRef({0, 3, 11}));
  const auto ids = example_ids();
  const auto refused_targets = [&](const at::Tensor& targets) {
    return value_error([&] { return model->loss(ids, targets); });
  };
  CHECK(refused_targets(ids + 1) == "GPT: expected targets in [0, 11), got 11");
  CHECK(refused_targets(ids - 1) == "GPT: expected targets in [0, 11), got -1");
  CHECK(refused_targets(ids[0]) == "GPT: expected targets of shape (2, 7), got (7,)");
  CHECK(refused_targets(ids.to(at::kFloat)) ==
        "GPT: expected targets as integers, got Float tensor of shape (2, 7)");
  CHECK(value_error([] { return GPT(GPTOptions(11, 0, 12, 3, 2)); }) ==
        "GPT: expected context_length > 0, or 0 with rotary positions, got 0");
  CHECK(value_error([] { return GPT(GPTOptions(11, 8, 12, 5, 2)); }) ==
        "GPT: expected num_heads to divide emb_dim = 12, got 5");
  CHECK(value_error([] { return GPT(GPTOptions(0, 8, 12, 3, 2)); }) == "GPT: expected vocab_size > 0, got 0");
  CHECK(value_error([] { return GPT(book().num_kv_heads(2)); }) ==
        "TransformerAttention: expected num_kv_heads to divide num_heads = 3, got 2");
}

TEST_CASE("a GPT of other sizes computes what its parts do", "[gpt]") {
  const double eps = 0.25;
  auto model = seeded_gpt(GPTOptions(11, 8, 12, 3, 1).hidden_dim(20).activation(Activation::Relu).eps(eps));
  const auto ids = example_ids();
  const auto norm = [&](const LayerNorm& layer_norm, const at::Tensor& x) {
    return at::layer_norm(x, {12}, layer_norm->scale, layer_norm->shift, eps);
  };
  const auto x = at::embedding(model->tok_emb->weight, ids) + model->pos_emb->weight.narrow(0, 0, 7);
  auto& block = model->trf_blocks->at<TransformerBlockImpl>(0);
  const auto linear = [&](size_t layer, const at::Tensor& in) {
    const auto& projection = *block.ff->layers->ptr<torch::nn::LinearImpl>(layer);
    return at::linear(in, projection.weight, projection.bias);
  };
  CHECK(block.ff->options.hidden_dim() == 20);
  const auto attended = x + block.att->forward(norm(block.norm1, x));
  const auto y = attended + linear(2, at::relu(linear(0, norm(block.norm2, attended))));
  const auto logits = at::linear(norm(model->final_norm, y), model->out_head->weight);
  CHECK_WITHIN(model->forward(ids), logits, {1e-5, 2e-6});
  CHECK(value_error([] { GPT(book().hidden_dim(-1)); }) == "GPT: expected hidden_dim > 0, got -1");
  CHECK(value_error([] { GPT(book().eps(-1)); }) ==
        "GPT: expected eps to be finite and not negative, got -1");
}

TEST_CASE("GPT's loss holds all logits only while they are small", "[gpt]") {
  constexpr int64_t kVocabulary = 70000;
  at::manual_seed(3);
  GPT model(GPTOptions(kVocabulary, 512, 4, 1, 1).tied(true));
  test::check_loss_in_chunks(model, kVocabulary);
}

TEST_CASE("GPT's loss leaves ignored targets out", "[gpt]") {
  constexpr int64_t kVocabulary = 70000;
  at::manual_seed(4);
  GPT model(GPTOptions(kVocabulary, 512, 4, 1, 1).tied(true));
  test::check_ignored_targets(model, kVocabulary, "GPT");
}

TEST_CASE("GPT: the bits do not depend on checkpoint", "[gpt][activation_checkpoint]") {
  test::check_bits_of_checkpoints(
      [](int64_t every) {
        return GPT(GPTOptions(11, 8, 12, 3, 3).dropout(0.2).tied(true).checkpoint(every));
      },
      /*autocast=*/GENERATE(false, true));
}

TEST_CASE("GPT: checkpoint keeps the inputs of blocks alone", "[gpt][activation_checkpoint]") {
  test::check_memory_of_checkpoints(
      [](int64_t every) { return GPT(GPTOptions(11, 256, 32, 1, 12).checkpoint(every)); });
}

TEST_CASE("GPT: checkpoint is an option like others", "[gpt][errors]") {
  CHECK(value_error([] { GPT(GPTOptions(11, 8, 12, 3, 3).dropout(0.2).tied(true).checkpoint(-1)); }) ==
        "GPT: expected checkpoint >= 0, got -1");
  GPT model(GPTOptions(11, 8, 12, 3, 3).dropout(0.2).tied(true).checkpoint(2));
  const auto copy = std::dynamic_pointer_cast<GPTImpl>(model->clone());
  CHECK(copy->options.checkpoint() == 2);
}
