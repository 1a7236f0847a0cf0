// Under autocast, a model computes the same with and without a cache.

#include <algorithm>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>
#include <attentive/models/generate.h>
#include <attentive/models/gpt.h>
#include <attentive/parity/compare.h>

#include "models/decoder_suite.h"
#include "support/autocast.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/gradcheck.h"

using namespace attentive;
using attentive::test::CpuAutocast;
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

namespace {

struct Case {
  const char* name;
  GPTOptions options;
};

std::vector<Case> cases() {
  const auto base = GPTOptions(13, 40, 24, 4, 3);
  const auto turned = GPTOptions(base).positions(GPTPositions::Rotary);
  const auto pairs =
      RotaryPositionsOptions(2).pairing(RotaryPairing::Halves).scaling(RotaryScaling::Ntk).factor(2);
  return {{"learned", base},
          {"rotary", turned},
          {"rotary halves, ntk, grouped", GPTOptions(turned).rotary(pairs).num_kv_heads(2)},
          {"window in a dense cache", GPTOptions(turned).window(5)},
          {"window in a ring", GPTOptions(turned).window(5).context_length(0)},
          {"window of one", GPTOptions(turned).window(1).context_length(0)}};
}

}  // namespace

TEST_CASE("A cached GPT gives the logits of the whole text at every step", "[gpt][kv_cache][cuda]") {
  const at::NoGradGuard no_grad;
  for (const auto& device : test::devices()) {
    for (const auto& [name, options] : cases()) {
      at::manual_seed(1);
      GPT model(options);
      model->eval();
      model->to(device);
      const auto ids = at::randint(13, {2, 33}, at::kLong).to(device);
      const auto whole = model->forward(ids);
      const auto cache = model->make_cache(2);
      // Prefills in chunks of several sizes (a ring accepts at most its window at once), then token by token.
      int64_t position = 0;
      for (const int64_t wanted : {5, 1, 3, 4}) {
        const auto tokens = std::min(wanted, cache->room());
        const auto logits = model->forward_cached(ids.narrow(1, position, tokens), *cache);
        INFO(name << ", chunk at " << position);
        CHECK_WITHIN(logits, whole.narrow(1, position, tokens), {0, 1e-5});
        position += tokens;
        CHECK(cache->position() == position);
      }
      for (; position < 33; ++position) {
        INFO(name << ", token " << position);
        CHECK_WITHIN(model->forward_cached(ids.narrow(1, position, 1), *cache), whole.narrow(1, position, 1),
                     {0, 1e-5});
      }
    }
  }
}

TEST_CASE("A cached GPT follows beams", "[gpt][kv_cache]") {
  const at::NoGradGuard no_grad;
  at::manual_seed(2);
  GPT model(GPTOptions(13, 40, 24, 4, 3));
  model->eval();
  const auto prompt = at::randint(13, {1, 6}, at::kLong);
  const auto cache = model->make_cache();
  model->forward_cached(prompt, *cache);
  cache->reorder(at::tensor({0, 0, 0}));  // one prompt, three beams
  const auto next = at::tensor({3, 7, 9}).view({3, 1});
  model->forward_cached(next, *cache);
  cache->reorder(at::tensor({2, 0, 2}));  // the second beam dies, the third one splits
  const auto last = at::tensor({1, 2, 4}).view({3, 1});
  const auto got = model->forward_cached(last, *cache);
  const std::vector<int64_t> parents{2, 0, 2};
  for (int64_t beam = 0; beam < 3; ++beam) {
    const auto ids = at::cat({prompt[0], next[parents[static_cast<size_t>(beam)]], last[beam]}).unsqueeze(0);
    CHECK_WITHIN(got[beam][0], model->forward(ids)[0][7], {0, 1e-5});
  }
}

TEST_CASE("A cached GPT refuses what does not fit, by name", "[gpt][kv_cache]") {
  const at::NoGradGuard no_grad;
  GPT model(GPTOptions(13, 8, 24, 4, 3));
  model->eval();
  const auto ids = at::randint(13, {1, 6}, at::kLong);
  DenseKVCache small({.layers = 3, .num_kv_heads = 4, .head_dim = 6}, 5);
  CHECK(value_error([&] { return model->forward_cached(ids, small); }) ==
        "DenseKVCache: expected at most capacity = 5 tokens, got 0 + 6");
  const auto cache = model->make_cache();
  model->forward_cached(ids, *cache);
  CHECK(value_error([&] { return model->forward_cached(ids, *cache); }) ==
        "GPT: expected at most context_length = 8 tokens, got 12");
  CHECK(value_error([&] {
          return model->forward_cached(at::cat({ids, ids}).narrow(1, 0, 1), *cache);
        }).starts_with("KVCache: expected k and v of shape (1, 4, T, 6), got (2, 4, 1, 6)"));
  DenseKVCache shallow({.layers = 2, .num_kv_heads = 4, .head_dim = 6}, 8);
  CHECK(value_error([&] { return model->forward_cached(ids, shallow); }) ==
        "GPT: expected a cache of 3 layers, got 2");
  RingKVCache ring({.layers = 3, .num_kv_heads = 4, .head_dim = 6}, 8);
  CHECK(value_error([&] { return model->forward_cached(ids, ring); }) ==
        "TransformerAttention: expected a window of at most 8 tokens with this RingKVCache, got window.left "
        "= -1");
  model->to(at::kDouble);
  cache->reset();
  CHECK_THROWS_AS(model->forward_cached(ids, *cache), c10::TypeError);
}

namespace {

struct AutocastCase {
  const char* name;
  GPTOptions options;
};

std::vector<AutocastCase> autocast_cases() {
  const auto base = GPTOptions(13, 40, 24, 4, 3);
  const auto turned = GPTOptions(base).positions(GPTPositions::Rotary);
  return {{"learned", base},
          {"tied", GPTOptions(base).tied(true)},
          {"rotary, grouped", GPTOptions(turned).num_kv_heads(2)},
          {"window in a ring", GPTOptions(turned).window(5).context_length(0)}};
}

GPT make_for_evaluation(const GPTOptions& options) {
  at::manual_seed(1);
  GPT model(options);
  model->eval();
  return model;
}

}  // namespace

TEST_CASE("The loss of a GPT of a half type is float32", "[gpt]") {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    auto model = make_for_evaluation(GPTOptions(13, 16, 16, 2, 2));
    model->to(type);
    const auto ids = at::randint(13, {2, 9}, at::kLong), targets = at::randint(13, {2, 9}, at::kLong);
    const auto loss = model->loss(ids, targets);
    const auto want =
        at::cross_entropy_loss(model->forward(ids).flatten(0, 1).to(at::kDouble), targets.flatten());
    CHECK(loss.scalar_type() == at::kFloat);
    CHECK(std::abs(loss.item<double>() - want.item<double>()) < 1e-6 * want.item<double>());
    loss.backward();
    CHECK(model->tok_emb->weight.grad().scalar_type() == type);
  }
}

TEST_CASE("A cached GPT under autocast gives the logits of the whole text", "[gpt][kv_cache][autocast]") {
  const at::NoGradGuard no_grad;
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const auto& [name, options] : autocast_cases()) {
      INFO(name << ", " << c10::toString(type));
      auto model = make_for_evaluation(options);
      const auto wide = model->make_cache();  // outside autocast: the model's dtype
      const CpuAutocast autocast(type);
      const auto narrow = model->make_cache();
      CHECK(wide->options().dtype == at::kFloat);
      CHECK(narrow->options().dtype == type);
      const auto tokens = std::min<int64_t>(narrow->room(), 9);
      const auto ids = at::randint(13, {1, tokens}, at::kLong);
      const auto whole = model->forward(ids);
      CHECK(whole.scalar_type() == type);
      for (const auto& cache : {wide.get(), narrow.get()}) {
        // Both compute the same products of the same numbers.
        CHECK(bit_equal(model->forward_cached(ids, *cache), whole));
        cache->reset();
        for (int64_t position = 0; position < tokens; ++position) {
          const auto logits = model->forward_cached(ids.narrow(1, position, 1), *cache);
          CHECK(difference(logits, whole.narrow(1, position, 1), tolerance_of(type)) == "");
        }
      }
    }
  }
}

TEST_CASE("generate under autocast gives the same tokens with and without its cache",
          "[generate][autocast]") {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const auto& [name, options] : autocast_cases()) {
      INFO(name << ", " << c10::toString(type));
      auto model = make_for_evaluation(options);
      {
        // Widely separated logits, so that rounding that depends on a product's shape does not change the
        // token.
        const at::NoGradGuard no_grad;
        (options.tied() ? model->tok_emb->weight : model->out_head->weight).mul_(8);
      }
      const CpuAutocast autocast(type);
      const auto ids = [&](bool cache) {
        return generate(*model, {1, 2, 3},
                        {.max_new_tokens = 20, .sampling = {.temperature = 0}, .use_cache = cache});
      };
      const auto cached = ids(true);
      CHECK(cached.size() == 20);
      CHECK(cached == ids(false));
    }
  }
}

TEST_CASE("A cache that was made under autocast is refused outside it", "[gpt][kv_cache][autocast]") {
  const at::NoGradGuard no_grad;
  auto model = make_for_evaluation(autocast_cases()[0].options);
  const auto cache = [&] {
    const CpuAutocast autocast(at::kBFloat16);
    return model->make_cache();
  }();
  CHECK(test::type_error([&] {
          model->forward_cached(at::randint(13, {1, 3}, at::kLong), *cache);
        }) == "KVCache: expected k and v of dtype BFloat16, got Float and Float");
}

TEST_CASE("Attention with normalized keys caches what autocast reads", "[transformer_attention][autocast]") {
  const at::NoGradGuard no_grad;
  at::manual_seed(2);
  TransformerAttention attention(
      TransformerAttentionOptions(16, 2).qk_norm(true).output_gate(true).rotary(RotaryPositionsOptions(2)));
  attention->eval();
  const auto x = at::randn({2, 6, 16});
  const CpuAutocast autocast(at::kBFloat16);
  const auto whole = attention->forward(x);
  for (const auto kept : {at::kFloat, at::kBFloat16}) {
    DenseKVCache cache({.batch = 2, .num_kv_heads = 2, .head_dim = 8, .dtype = kept}, 8);
    CHECK(bit_equal(attention->forward_cached(x, cache, 0), whole));
  }
}
