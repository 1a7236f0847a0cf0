// Equality with transformers' classes is tested by tests/parity/models.safetensors.

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <attentive/files/state_dict.h>
#include <attentive/models/llama.h>

#include "models/decoder_suite.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/gradcheck.h"

using namespace attentive;
using attentive::test::example_ids;
using attentive::test::value_error;

namespace {

LlamaOptions plain() {
  return LlamaOptions(11, 12, 4, 3).hidden_dim(10).num_kv_heads(2).head_dim(6).context_length(40);
}

// All options that Gemma 2 and 3 use.
LlamaOptions gemma() {
  const auto turned = RotaryPositionsOptions(0).base(50).pairing(RotaryPairing::Halves);
  return plain()
      .qk_norm(true)
      .tied(true)
      .unit_offset(true)
      .norm_after(true)
      .scaled_embedding(true)
      .scale(0.5)
      .softcap(2.0)
      .logit_softcap(3.0)
      .activation(Activation::GeluTanh)
      .windows({4, 0, 3})
      .window_rotary(turned);
}

LlamaOptions biased() {
  return plain().qkv_bias(true).out_bias(true).ff_bias(true).head_dim(0).num_heads(3).num_kv_heads(0);
}

LlamaOptions ring() {
  return plain().context_length(0).windows({5, 4, 5});
}

// Norms and biases get values that differ from their initial ones.
Llama seeded_llama(const LlamaOptions& options) {
  at::manual_seed(123);
  Llama model(options);
  const at::NoGradGuard no_grad;
  for (auto& p : model->parameters()) {
    if (p.dim() == 1) p.add_(at::randn(p.sizes()) * 0.3);
  }
  return model;
}

std::vector<std::string> names(const Llama& model) {
  std::vector<std::string> result;
  for (const auto& item : model->named_parameters()) {
    if (!item.key().starts_with("blocks.1.") && !item.key().starts_with("blocks.2."))
      result.push_back(item.key());
  }
  return result;
}

}  // namespace

TEST_CASE("Llama has the parameters that its options name", "[llama]") {
  const std::vector<std::string> attention{"blocks.0.att.W_query.weight", "blocks.0.att.W_key.weight",
                                           "blocks.0.att.W_value.weight", "blocks.0.att.out_proj.weight"};
  std::vector<std::string> expected{"tok_emb.weight"};
  expected.insert(expected.end(), attention.begin(), attention.end());
  for (const char* name :
       {"blocks.0.ff.layers.0.weight", "blocks.0.ff.layers.2.weight", "blocks.0.ff.gate.weight",
        "blocks.0.norm1.weight", "blocks.0.norm2.weight", "final_norm.weight", "out_head.weight"})
    expected.emplace_back(name);
  CHECK(names(Llama(plain())) == expected);

  expected = {"tok_emb.weight"};
  expected.insert(expected.end(), attention.begin(), attention.end());
  for (const char* name :
       {"blocks.0.att.q_norm.weight", "blocks.0.att.k_norm.weight", "blocks.0.ff.layers.0.weight",
        "blocks.0.ff.layers.2.weight", "blocks.0.ff.gate.weight", "blocks.0.norm1.weight",
        "blocks.0.norm2.weight", "blocks.0.after1.weight", "blocks.0.after2.weight", "final_norm.weight"})
    expected.emplace_back(name);
  Llama model(gemma());
  CHECK(names(model) == expected);
  const auto sizes = [&](const char* name) { return model->named_parameters()[name].sizes(); };
  CHECK(sizes("blocks.0.att.W_query.weight") == at::IntArrayRef({24, 12}));
  CHECK(sizes("blocks.0.att.W_key.weight") == at::IntArrayRef({12, 12}));
  CHECK(sizes("blocks.0.att.out_proj.weight") == at::IntArrayRef({12, 24}));
  CHECK(sizes("blocks.0.att.q_norm.weight") == at::IntArrayRef({6}));
  CHECK(sizes("blocks.0.ff.gate.weight") == at::IntArrayRef({10, 12}));
  CHECK(names(Llama(biased())).size() == 19);
  CHECK(Llama(LlamaOptions(11, 12, 3, 1))->named_parameters()["blocks.0.ff.gate.weight"].size(0) == 48);
}

TEST_CASE("A cached Llama gives the logits of the whole text at every step", "[llama][kv_cache][cuda]") {
  const at::NoGradGuard no_grad;
  for (const auto& device : test::devices()) {
    for (const auto& options : {plain(), gemma(), biased(), ring()}) {
      INFO(options.windows().size() << " windows, context " << options.context_length());
      auto model = seeded_llama(options);
      model->eval();
      model->to(device);
      const auto ids = at::randint(11, {2, 23}, at::kLong).to(device);
      const auto whole = model->forward(ids);
      const auto cache = model->make_cache(2);
      CHECK((dynamic_cast<RingKVCache*>(cache.get()) != nullptr) == (options.context_length() == 0));
      int64_t position = 0;
      for (const int64_t wanted : {5, 1, 3, 4}) {
        const auto tokens = std::min(wanted, cache->room());
        CHECK_WITHIN(model->forward_cached(ids.narrow(1, position, tokens), *cache),
                     whole.narrow(1, position, tokens), {1e-5, 5e-6});
        position += tokens;
      }
      for (; position < 23; ++position) {
        INFO("token " << position);
        CHECK_WITHIN(model->forward_cached(ids.narrow(1, position, 1), *cache), whole.narrow(1, position, 1),
                     {1e-5, 5e-6});
      }
    }
  }
}

TEST_CASE("A Llama's cache is a ring if every layer has a window and there is no limit",
          "[llama][kv_cache]") {
  const auto is_ring = [](const LlamaOptions& options) {
    const auto cache = Llama(options)->make_cache(1, /*capacity=*/16);
    return dynamic_cast<RingKVCache*>(cache.get()) != nullptr;
  };
  const LlamaOptions base(11, 12, 3, 2);
  CHECK(is_ring(LlamaOptions(base).windows({3, 4})));
  CHECK_FALSE(is_ring(LlamaOptions(base).windows({3, 4}).context_length(16)));
  CHECK_FALSE(is_ring(LlamaOptions(base).windows({3, 0})));
  CHECK_FALSE(is_ring(LlamaOptions(base).windows({3})));  // the other layer has none
  CHECK_FALSE(is_ring(base));
}

TEST_CASE("A mask of a cached Llama covers the cached keys too", "[llama][kv_cache]") {
  const at::NoGradGuard no_grad;
  auto model = seeded_llama(gemma());
  model->eval();
  const auto ids = at::randint(11, {2, 9}, at::kLong);
  const auto keep = at::tensor({1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}).view({2, 9});
  const auto whole = model->forward(ids, Mask::key_keep(keep));
  CHECK_FALSE(bit_equal(whole, model->forward(ids)));
  const auto cache = model->make_cache(2);
  for (int64_t position = 0; position < 9; ++position) {
    const auto logits = model->forward_cached(ids.narrow(1, position, 1), *cache,
                                              Mask::key_keep(keep.narrow(1, 0, position + 1)));
    CHECK_WITHIN(logits, whole.narrow(1, position, 1), {1e-5, 5e-6});
  }
}

TEST_CASE("Llama's layers see as far as their windows", "[llama]") {
  const at::NoGradGuard no_grad;
  const auto reach = [](std::vector<int64_t> windows) {
    auto model = seeded_llama(plain().windows(std::move(windows)));
    const auto ids = at::arange(20).remainder(11).unsqueeze(0);
    auto changed = ids.clone();
    changed[0][3] = 9;
    const auto same = (model->forward(changed) == model->forward(ids)).all(2)[0];
    CHECK(same.narrow(0, 0, 3).all().item<bool>());
    int64_t last = 3;
    for (int64_t t = 3; t < 20; ++t) {
      if (!same[t].item<bool>()) last = t;
    }
    return last - 3;
  };
  CHECK(reach({2, 3, 4}) == 1 + 2 + 3);
  CHECK(reach({1, 1, 1}) == 0);
  CHECK(reach({2, 3}) == 16);  // the last layer has no window
  CHECK(reach({2, 0, 4}) == 16);
  CHECK(reach({}) == 16);
}

TEST_CASE("Llama's clone is whole and independent, tied weights included", "[llama]") {
  for (const auto& options : {plain(), gemma()}) {
    auto model = seeded_llama(options);
    Llama copy(std::dynamic_pointer_cast<LlamaImpl>(model->clone()));
    const auto ids = example_ids();
    CHECK(bit_equal(copy->forward(ids), model->forward(ids)));
    copy->loss(ids, ids).backward();
    {
      const at::NoGradGuard no_grad;
      for (auto& p : copy->parameters()) p.sub_(p.grad());
    }
    CHECK(bit_equal(model->forward(ids), seeded_llama(options)->forward(ids)));
    CHECK_FALSE(bit_equal(copy->forward(ids), model->forward(ids)));
  }
  // A separate block keeps its layer, which determines its window.
  LlamaBlock block(gemma(), 2);
  LlamaBlock same(std::dynamic_pointer_cast<LlamaBlockImpl>(block->clone()));
  CHECK(same->att->options.attention().window.left == 2);
  CHECK(same->att->options.rotary()->base() == 50);
  CHECK(LlamaBlock(gemma(), 1)->att->options.rotary()->base() == 10000);
}

TEST_CASE("Llama keeps its meaning in other dtypes and through a state dict", "[llama]") {
  for (const auto& options : {plain(), gemma(), biased()}) {
    auto model = seeded_llama(options);
    const auto ids = example_ids();
    Llama other(options);
    load_state_dict(*other, state_dict(*model));
    CHECK(bit_equal(other->forward(ids), model->forward(ids)));
    CHECK(bit_equal(model->forward(ids.to(at::kInt)), model->forward(ids)));
    other->to(at::kDouble);
    CHECK_WITHIN(model->forward(ids), other->forward(ids), {1e-5, 2e-6});
    other->to(at::kBFloat16);
    CHECK_WITHIN(other->forward(ids), model->forward(ids), {5e-2, 2e-2});
    other->to(at::kFloat);
    load_state_dict(*other, state_dict(*model));
    other->to(at::kHalf);
    CHECK_WITHIN(other->forward(ids), model->forward(ids), {6e-3, 3e-3});
  }
}

TEST_CASE("Llama's gradients equal differences", "[llama]") {
  for (const auto& options : {plain(), gemma(), biased()}) {
    auto model = seeded_llama(options);
    model->to(at::kDouble);
    const auto ids = example_ids().narrow(1, 0, 5);
    CHECK(test::gradcheck_directions([&] { return model->forward(ids); }, model->parameters()) == "");
  }
}

TEST_CASE("Llama's loss is the mean cross-entropy of its logits", "[llama]") {
  auto model = seeded_llama(gemma());
  const auto ids = example_ids(), targets = ids.mul(3).add(1).remainder(11);
  const auto chosen = model->forward(ids).log_softmax(-1).gather(2, targets.unsqueeze(2));
  CHECK_WITHIN(model->loss(ids, targets), -chosen.mean(), {1e-6, 1e-6});
}

TEST_CASE("Llama drops attention weights in training alone", "[llama]") {
  auto model = seeded_llama(plain().dropout(0.3));
  const auto ids = example_ids();
  CHECK_FALSE(bit_equal(model->forward(ids), model->forward(ids)));
  model->eval();
  CHECK(bit_equal(model->forward(ids), model->forward(ids)));
}

TEST_CASE("Llama refuses ids and options without meaning, by name", "[llama]") {
  const auto refused = [](const LlamaOptions& options) { return value_error([&] { Llama{options}; }); };
  CHECK(refused(plain().vocab_size(0)) == "Llama: expected vocab_size > 0, got 0");
  CHECK(refused(plain().head_dim(0).num_heads(5)) ==
        "Llama: expected num_heads to divide emb_dim = 12, got 5");
  CHECK(refused(plain().num_kv_heads(3)) ==
        "TransformerAttention: expected num_kv_heads to divide num_heads = 4, got 3");
  CHECK(refused(plain().head_dim(5)) == "RotaryPositions: expected an even head_dim > 0, got 5");
  CHECK(refused(plain().context_length(-1)) == "Llama: expected context_length >= 0, got -1");
  CHECK(refused(plain().eps(-1)) == "Llama: expected eps to be finite and not negative, got -1");
  CHECK(refused(plain().logit_softcap(0.0)) == "Llama: expected logit_softcap > 0, got 0");
  CHECK(refused(plain().windows({1, -2})) == "Llama: expected windows >= 0, got -2");
  CHECK(refused(plain().windows({1, 1, 1, 1})) ==
        "Llama: expected windows for at most num_layers = 3 layers, got 4");
  CHECK(value_error([] { LlamaBlock(plain(), 3); }) == "LlamaBlock: expected layer in [0, 3), got 3");

  auto model = seeded_llama(plain());
  CHECK(value_error([&] { model->forward(example_ids() + 1); }) == "Llama: expected ids in [0, 11), got 11");
  CHECK(value_error([&] {
          model->forward(at::randint(11, {1, 41}, at::kLong));
        }) == "Llama: expected at most context_length = 40 tokens, got 41");
  CHECK(value_error([&] { model->loss(example_ids(), example_ids() - 1); }) ==
        "Llama: expected targets in [0, 11), got -1");
  const auto other = Llama(plain().num_layers(2))->make_cache();
  CHECK(value_error([&] { model->forward_cached(example_ids(), *other); }) ==
        "Llama: expected a cache of 3 layers, got 2");
  CHECK(value_error([] { Llama(plain().context_length(0))->make_cache(); }) ==
        "Llama: expected a capacity, because there is neither a context_length nor a window in every layer");
  CHECK(Llama(plain().context_length(0))->make_cache(2, 7)->slots() == 7);
  CHECK(model->make_cache()->slots() == 40);
}

TEST_CASE("Llama's loss holds all logits only while they are small", "[llama]") {
  constexpr int64_t kVocabulary = 70000;
  at::manual_seed(3);
  Llama model(LlamaOptions(kVocabulary, 4, 1, 1).tied(true).logit_softcap(3.0));
  test::check_loss_in_chunks(model, kVocabulary);
}

TEST_CASE("Llama's loss leaves ignored targets out", "[llama]") {
  constexpr int64_t kVocabulary = 70000;
  at::manual_seed(4);
  Llama model(LlamaOptions(kVocabulary, 4, 1, 1).tied(true).logit_softcap(3.0));
  test::check_ignored_targets(model, kVocabulary, "Llama");
}

TEST_CASE("Llama: the bits do not depend on checkpoint", "[llama][activation_checkpoint]") {
  test::check_bits_of_checkpoints(
      [](int64_t every) { return Llama(LlamaOptions(11, 12, 3, 3).dropout(0.2).checkpoint(every)); },
      /*autocast=*/GENERATE(false, true));
}

TEST_CASE("Llama: checkpoint keeps the inputs of blocks alone", "[llama][activation_checkpoint]") {
  test::check_memory_of_checkpoints(
      [](int64_t every) { return Llama(LlamaOptions(11, 32, 1, 12).checkpoint(every)); });
}

TEST_CASE("Llama: checkpoint is an option like others", "[llama][errors]") {
  CHECK(value_error([] { Llama(LlamaOptions(11, 12, 3, 3).dropout(0.2).checkpoint(-1)); }) ==
        "Llama: expected checkpoint >= 0, got -1");
  Llama model(LlamaOptions(11, 12, 3, 3).dropout(0.2).checkpoint(2));
  const auto copy = std::dynamic_pointer_cast<LlamaImpl>(model->clone());
  CHECK(copy->options.checkpoint() == 2);
}
