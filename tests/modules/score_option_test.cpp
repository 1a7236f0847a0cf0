// The options `score` and `block_mask` of the attention modules.

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <attentive/core/options.h>
#include <attentive/functional/attention.h>
#include <attentive/functional/attention_recorder.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/modules/transformer_blocks.h>
#include <attentive/score/score_mod.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr int64_t kScoredHeads = 4;

// ALiBi, written as a score of one's own.
ScoreMod distances() {
  const auto slope = captured(alibi_slopes(kScoredHeads, at::kCPU));
  return score_mod([=](auto s, auto pair) { return s - slope(pair.head) * abs(pair.query - pair.key); },
                   "distances");
}

// A causal window of 5 tokens.
MaskMod window() {
  return mask_mod([](auto pair) { return (pair.query >= pair.key) & (pair.query - pair.key < 5); }, "window");
}
constexpr AttentionOptions kWindow{.causal = Causal::BottomRight, .window = {4, 0}};

template <class Holder>
std::vector<std::string> keys_of(const Holder& module) {
  std::vector<std::string> keys;
  for (const auto& parameter : module->named_parameters()) keys.push_back(parameter.key());
  return keys;
}

// Compares a module that has a score and a mask function with one of equal weights, whose options mean the
// same.
template <class Holder, class Options>
void check_same(const Options& plain, Options same) {
  const auto x = at::randn({2, 11, 8});
  const auto made = [](const Options& options) {
    at::manual_seed(3);
    return Holder(options);
  };
  auto with_functions = made(Options(plain).score(distances()).block_mask(window()).attention({}));
  CHECK_CLOSE(with_functions->forward(x), made(same.attention(kWindow))->forward(x));
  auto without = made(plain);
  CHECK(keys_of(with_functions) == keys_of(without));
  // The numbers of a layer change with its options.
  const auto before = without->forward(x);
  without->options.score(distances());
  CHECK(difference(without->forward(x), before) != "");
  const auto copy = std::static_pointer_cast<typename Holder::Impl>(with_functions->clone());
  CHECK(bit_equal(copy->forward(x), with_functions->forward(x)));
  std::ostringstream text;
  copy->pretty_print(text);
  CHECK(text.str().find("score=distances, block_mask=window, ") != std::string::npos);
}

TransformerAttentionOptions layer() {
  return TransformerAttentionOptions(8, kScoredHeads).num_kv_heads(2);
}

// Holds the whole sequence in one process, and remembers the functions that it was given.
class OneProcess final : public AttentionContext {
 public:
  int64_t size() const override { return 1; }
  std::vector<Run> runs(int64_t tokens) const override { return {{0, tokens}}; }
  AttentionResult attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionOptions& options, const AttentionExtras& extras) override {
    names = {extras.score.name(), extras.block_mask.mask().name()};
    return attentive::attention(q, k, v, options, extras);
  }

  std::vector<std::string> names;
};

}  // namespace

TEST_CASE("modules attend with a score and a mask function of one's own", "[score_option]") {
  SECTION("MultiHeadAttention") {
    const MultiHeadAttentionOptions options(8, 8, 0, 0.0, kScoredHeads);
    check_same<MultiHeadAttention>(options, MultiHeadAttentionOptions(options).alibi(true));
  }
  SECTION("GroupedQueryAttention") {
    const GroupedQueryAttentionOptions options(8, 8, 0, 0.0, kScoredHeads, 2);
    check_same<GroupedQueryAttention>(options, GroupedQueryAttentionOptions(options).alibi(true));
  }
}

TEST_CASE("TransformerAttention attends with a score and a mask function", "[score_option]") {
  const auto x = at::randn({2, 11, 8});
  at::manual_seed(3);
  TransformerAttention want(layer().attention(kWindow).position_bias(DistanceBiasOptions(kScoredHeads)));
  at::manual_seed(3);
  TransformerAttention got(layer().attention({}).score(distances()).block_mask(window()));
  CHECK_CLOSE(got->forward(x), want->forward(x));
}

TEST_CASE("blocks pass the functions of their options to the self-attention", "[score_option]") {
  const auto x = at::randn({2, 6, 8}), memory = at::randn({2, 3, 8});
  const auto options = TransformerBlockOptions(layer().score(distances()).block_mask(window()));
  const auto plain = TransformerBlockOptions(layer());
  const auto check = [&](const auto& make, const auto& forward) {
    at::manual_seed(3);
    auto got = make(options);
    at::manual_seed(3);
    auto other = make(plain);
    const auto before = forward(other);
    CHECK(difference(forward(got), before) != "");
    other->att->options.score(distances()).block_mask(window());
    CHECK(bit_equal(forward(got), forward(other)));
    std::ostringstream text;
    got->pretty_print(text);
    CHECK(text.str().find("score=distances, block_mask=window") != std::string::npos);
  };
  const auto run = [&](auto block) { return block->forward(x); };
  check([](const auto& o) { return TransformerBlock(o); }, run);
  check([](const auto& o) { return encoder_block(o); }, run);
  check([](const auto& o) { return DecoderBlock(o); }, [&](auto block) { return block->forward(x, memory); });
}

TEST_CASE("a cache keeps the places of a score and a mask function", "[score_option][cache]") {
  const auto backend = GENERATE(Backend::Native, Backend::Reference);
  INFO(to_string(backend));
  const BackendGuard guard(backend);
  const at::NoGradGuard no_grad;
  at::manual_seed(6);
  constexpr int64_t kTokens = 24;
  const auto table = captured(at::randn({kScoredHeads, kTokens}));
  const auto document = captured_indices(at::randint(2, {2, kTokens}));
  const auto score = score_mod([=](auto s, auto pair) {
    return s - 0.3f * abs(pair.query - pair.key) + table(pair.head, pair.key) * table(pair.head, pair.query);
  });
  const auto mask = mask_mod([=](auto pair) {
    return (document(pair.batch, pair.query) == document(pair.batch, pair.key)) | (pair.key < 2);
  });
  TransformerAttention m(layer().score(score).block_mask(mask).rotary(RotaryPositionsOptions(0)));
  const auto x = at::randn({2, kTokens, 8});
  const auto want = m->forward(x);
  DenseKVCache cache({.batch = 2, .num_kv_heads = 2, .head_dim = 2}, kTokens);
  // A prompt, a chunk, and then one token after the other.
  std::vector<at::Tensor> steps;
  for (const auto& [first, last] : {std::pair{0, 9}, {9, 20}, {20, 21}, {21, 22}, {22, 23}, {23, 24}})
    steps.push_back(m->forward_cached(x.slice(1, first, last), cache, 0));
  CHECK_CLOSE(at::cat(steps, 1), want);
}

TEST_CASE("a ring of keys refuses functions of places, by name", "[score_option][cache][errors]") {
  const at::NoGradGuard no_grad;
  const auto refused = [](const TransformerAttentionOptions& options) {
    RingKVCache ring({.num_kv_heads = 2, .head_dim = 2}, 5);
    TransformerAttention m(TransformerAttentionOptions(options).attention(kWindow));
    return value_error([&] { m->forward_cached(at::randn({1, 3, 8}), ring, 0); });
  };
  CHECK(refused(layer()) == "no error");
  CHECK(
      refused(layer().score(distances())) ==
      "TransformerAttention: expected no score with a RingKVCache, whose keys have lost their places in the "
      "sequence, got \"distances\"; a DenseKVCache keeps them");
  CHECK(
      refused(layer().block_mask(window())) ==
      "TransformerAttention: expected no block_mask with a RingKVCache, whose keys have lost their places in "
      "the sequence, got \"window\"; a DenseKVCache keeps them");
  TransformerAttention m(layer().score(distances()));
  DenseKVCache padded({.num_kv_heads = 2, .head_dim = 2}, 5);
  padded.set_padding(at::ones({1}, at::kLong));
  CHECK(value_error([&] {
          m->forward_cached(at::randn({1, 3, 8}), padded, 0);
        }) ==
        "TransformerAttention: expected no score with a padded KVCache, whose keys have lost their places in "
        "the sequence, got \"distances\"; a DenseKVCache without padding keeps them");
}

TEST_CASE("a layer takes a mask whose tiles are kept, for the lengths that it has", "[score_option]") {
  constexpr int64_t kTokens = 300;
  TransformerAttention m(layer().attention({}).block_mask(window()));
  const auto x = at::randn({2, kTokens, 8}), want = m->forward(x);
  m->options.block_mask(BlockMask::kept(window(), 1, 1, kTokens, kTokens));
  const auto copy = std::static_pointer_cast<TransformerAttentionImpl>(m->clone());
  CHECK(bit_equal(copy->forward(x), want));
  CHECK(value_error([&] { copy->forward(x.narrow(1, 0, 7)); }) ==
        "attention: expected a block_mask kept for (B, H, L, S) = (2, 4, 7, 7), got one for (1, 1, "
        "300, 300)");
}

TEST_CASE("a context and a recorder get the functions of a layer", "[score_option][recorder]") {
  TransformerAttention m(layer().score(distances()).block_mask(window()));
  const auto x = at::randn({2, 6, 8});
  const auto want = m->forward(x);
  AttentionRecorder recorder(*m);
  const auto context = std::make_shared<OneProcess>();
  m->context = context;
  CHECK(bit_equal(m->forward(x), want));
  CHECK(context->names == std::vector<std::string>{"distances", "window"});
  REQUIRE(recorder.calls().size() == 1);
  CHECK(recorder.calls()[0].score.name() == "distances");
  // The window hides the first key from the last query.
  CHECK(recorder.calls()[0].weights().select(2, 5).select(2, 0).eq(0).all().item<bool>());
}
