// Where queries stand among the keys: `Align`, and `Mask::query_lengths`.

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/cache/kv_cache.h>
#include <attentive/functional/attention_recorder.h>
#include <attentive/functional/explain.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/modules/transformer_attention.h>
#include <attentive/score/score_mod.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr int64_t kAlignedItems = 5, kAlignedHeads = 4;

// A call whose items have these lengths.
struct Lengths {
  std::vector<int64_t> queries, keys;
  int64_t longest_queries, longest_keys;
};

// The rows of an item that belong to its sequence.
int64_t first_row(const Lengths& lengths, int64_t b) {
  return std::max<int64_t>(lengths.queries[b] - lengths.keys[b], 0);
}

OptionCall call_of(const Lengths& lengths, at::ScalarType type) {
  at::manual_seed(3);
  OptionCall call;
  call.q = at::randn({kAlignedItems, kAlignedHeads, lengths.longest_queries, 16}, at::kDouble).to(type);
  call.k = at::randn({kAlignedItems, kAlignedHeads / 2, lengths.longest_keys, 16}, at::kDouble).to(type);
  call.v = at::randn({kAlignedItems, kAlignedHeads / 2, lengths.longest_keys, 8}, at::kDouble).to(type);
  call.options.align = Align::Lengths;
  call.extras.logsumexp = true;
  return call;
}

struct Computed {
  AttentionResult result;
  std::vector<at::Tensor> gradients;  // of q, k, v, then of the bias, the slopes and the sinks
};

// Runs a call and differentiates it along directions (B, H, L, X) that belong to it.
Computed run(const OptionCall& call, const AttentionResult& directions) {
  at::manual_seed(9);
  Computed got{attention(call.q, call.k, call.v, call.options, call.extras), {}};
  const auto& extras = call.extras;
  std::vector<at::Tensor> outputs = {got.result.output}, along = {directions.output};
  if (extras.weights != Weights::None) {
    outputs.push_back(got.result.weights);
    along.push_back(directions.weights);
  }
  const auto& lse = got.result.logsumexp;
  if (extras.logsumexp) {
    outputs.push_back(lse.masked_fill(lse.isinf(), 0.0));
    along.push_back(directions.logsumexp.to(lse.scalar_type()));
  }
  std::vector<at::Tensor> leaves = {call.q, call.k, call.v};
  for (const auto& term : extras.mask.bias_terms()) leaves.push_back(term);
  for (const auto& x : {extras.alibi_slopes, extras.sinks}) {
    if (x.defined()) leaves.push_back(x);
  }
  got.gradients = torch::autograd::grad(outputs, leaves, along);
  return got;
}

// Checks every item of a call by lengths against a call of its own on the cut tensors. An item has the same
// bits in any batch, and its number decides about dropout, so the own call repeats it up to that number.
void check_items(const OptionCall& given, const Lengths& lengths) {
  OptionCall call = given;
  auto leaf = [](const at::Tensor& x) { return x.detach().clone().requires_grad_(true); };
  for (auto* x : {&call.q, &call.k, &call.v, &call.extras.alibi_slopes, &call.extras.sinks}) {
    if (x->defined()) *x = leaf(*x);
  }
  const auto& terms = given.extras.mask;
  const at::Tensor bias = terms.bias_terms().empty() ? at::Tensor() : leaf(terms.bias_terms()[0]),
                   keep = terms.keep_terms().empty() ? at::Tensor() : terms.keep_terms()[0],
                   key_keep = terms.key_keep_terms().empty() ? at::Tensor() : terms.key_keep_terms()[0];
  call.extras.mask =
      Mask::key_lengths(at::tensor(lengths.keys)) & Mask::query_lengths(at::tensor(lengths.queries));
  if (bias.defined()) call.extras.mask &= Mask::bias(bias);
  if (keep.defined()) call.extras.mask &= keep;
  if (key_keep.defined()) call.extras.mask &= Mask::key_keep(key_keep);
  at::manual_seed(4);
  const int64_t L = lengths.longest_queries, S = lengths.longest_keys;
  const AttentionResult directions{at::randn({kAlignedItems, kAlignedHeads, L, 8}).to(call.q.scalar_type()),
                                   at::randn({kAlignedItems, kAlignedHeads, L, S}).to(call.q.scalar_type()),
                                   at::randn({kAlignedItems, kAlignedHeads, L})};
  const auto whole = run(call, directions);
  std::vector<at::Tensor> shared(whole.gradients.size());  // sums over the items
  const auto expect = [&](const std::string& what, const at::Tensor& got, const at::Tensor& want) {
    INFO(what);
    if (got.defined()) CHECK(bit_equal(got, want));
  };
  for (int64_t b = 0; b < kAlignedItems; ++b) {
    INFO("item " << b);
    const int64_t first = first_row(lengths, b), end = lengths.queries[b], keys = lengths.keys[b];
    const auto outside = [&](const at::Tensor& x, int64_t from, int64_t to) {
      if (!x.defined()) return;
      for (const auto& part : {x[b].slice(1, 0, from), x[b].slice(1, to)})
        CHECK(bit_equal(part, at::zeros_like(part)));
    };
    outside(whole.result.output, first, end);
    outside(whole.result.weights, first, end);
    outside(whole.gradients[0], first, end);
    outside(whole.gradients[1], 0, keys);
    outside(whole.gradients[2], 0, keys);
    if (whole.result.logsumexp.defined()) {
      const auto& lse = whole.result.logsumexp;
      CHECK(lse[b].slice(1, 0, first).eq(-kInfinity).all().item<bool>());
      CHECK(lse[b].slice(1, end).eq(-kInfinity).all().item<bool>());
    }
    if (first == end || keys == 0) continue;
    OptionCall own = call;
    own.options.align = Align::BottomRight;
    const auto repeat = [&](const at::Tensor& x, int64_t from, int64_t to) {
      return x.detach().narrow(0, b, 1).slice(2, from, to).repeat({b + 1, 1, 1, 1});
    };
    own.q = leaf(repeat(call.q, first, end));
    own.k = leaf(repeat(call.k, 0, keys));
    own.v = leaf(repeat(call.v, 0, keys));
    const auto cut = [&](const at::Tensor& x) {
      auto one = x.detach();
      if (one.size(0) > 1) one = one.narrow(0, b, 1);
      if (one.size(2) > 1) one = one.slice(2, first, end);
      if (one.size(3) > 1) one = one.slice(3, 0, keys);
      return one.repeat({b + 1, 1, 1, 1});
    };
    own.extras.mask = {};
    if (bias.defined()) own.extras.mask &= Mask::bias(leaf(cut(bias)));
    if (keep.defined()) own.extras.mask &= cut(keep);
    if (key_keep.defined())
      own.extras.mask &= Mask::key_keep(key_keep.narrow(0, b, 1).slice(1, 0, keys).repeat({b + 1, 1}));
    auto& slopes = own.extras.alibi_slopes;
    if (slopes.defined()) slopes = leaf(slopes.detach().narrow(0, b, 1).repeat({b + 1, 1}));
    if (own.extras.sinks.defined()) own.extras.sinks = leaf(own.extras.sinks);
    // The repetitions are not differentiated.
    const auto last = [&](const at::Tensor& x, bool pairs) {
      auto all = x.narrow(0, b, 1).slice(2, first, end).repeat(std::vector<int64_t>(x.dim() == 4 ? 4 : 3, 1));
      if (pairs) all = all.slice(3, 0, keys);
      auto sizes = all.sizes().vec();
      sizes[0] = b + 1;
      auto placed = at::zeros(sizes, all.options());
      placed[b].copy_(all[0]);
      return placed;
    };
    const auto one = run(own, {last(directions.output, false), last(directions.weights, true),
                               last(directions.logsumexp, false)});
    const auto rows = [&](const at::Tensor& x) { return x.defined() ? x[b].slice(1, first, end) : x; };
    const auto mine = [&](const at::Tensor& x) { return x.defined() ? x[b] : x; };
    expect("output", rows(whole.result.output), mine(one.result.output));
    expect("logsumexp", rows(whole.result.logsumexp), mine(one.result.logsumexp));
    if (whole.result.weights.defined())
      expect("weights", rows(whole.result.weights).slice(2, 0, keys), mine(one.result.weights));
    expect("gradient of q", rows(whole.gradients[0]), one.gradients[0][b]);
    for (const size_t n : {1, 2})
      expect(n == 1 ? "gradient of k" : "gradient of v", whole.gradients[n][b].slice(1, 0, keys),
             one.gradients[n][b]);
    for (size_t n = 3; n < whole.gradients.size(); ++n) {
      const auto& all = whole.gradients[n];
      if (all.dim() == 1) {  // sinks
        shared[n] = shared[n].defined() ? shared[n] + one.gradients[n] : one.gradients[n];
      } else if (all.size(0) == 1) {
        if (!shared[n].defined()) shared[n] = at::zeros(all.sizes(), at::kFloat);
        auto part = shared[n].slice(2, all.size(2) > 1 ? first : 0, all.size(2) > 1 ? end : 1);
        if (all.size(3) > 1) part = part.slice(3, 0, keys);
        part += one.gradients[n].narrow(0, b, 1);
      } else if (all.dim() == 2) {  // slopes
        expect("gradient of slopes", all[b], one.gradients[n][b]);
      } else {
        auto part = all[b].slice(1, all.size(2) > 1 ? first : 0, all.size(2) > 1 ? end : 1);
        if (all.size(3) > 1) part = part.slice(2, 0, keys);
        expect("gradient of the bias", part, one.gradients[n][b]);
      }
    }
  }
  for (size_t n = 3; n < shared.size(); ++n) {
    if (shared[n].defined())
      CHECK(difference(whole.gradients[n], shared[n].to(whole.gradients[n].scalar_type()),
                       tolerance_of(call.q.scalar_type(), /*gradient=*/true)) == "");
  }
}

}  // namespace

TEST_CASE("each item of a call by lengths has the bits of its own call", "[align]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const auto lengths = GENERATE(Lengths{{40, 33, 5, 1, 40}, {300, 17, 0, 129, 130}, 40, 300},
                                Lengths{{1, 1, 0, 1, 1}, {70, 2, 9, 33, 0}, 1, 70});
  INFO(c10::toString(type) << ", " << lengths.longest_queries << " queries");
  const int64_t L = lengths.longest_queries, S = lengths.longest_keys;
  auto call = call_of(lengths, type);
  call.options.backend = Backend::Native;
  SECTION("plain") {}
  SECTION("causal, a window and slopes") {
    call.options.causal = Causal::BottomRight;
    call.options.window = {20, -1};
    call.extras.alibi_slopes = at::rand({kAlignedItems, kAlignedHeads});
  }
  SECTION("a window on both sides, sinks, dropout and weights") {
    call.options.window = {9, 30};
    call.options.dropout_p = 0.4;
    call.options.dropout_stream = DropoutStream::Counter;
    call.extras.sinks = at::randn({kAlignedHeads});
    call.extras.weights = GENERATE(Weights::Clean, Weights::Dropped);
  }
  SECTION("weights, whose gradient the backward pass reads") {
    call.extras.weights = Weights::Clean;
    call.extras.mask = Mask::bias(at::randn({kAlignedItems, kAlignedHeads, L, S}));
  }
  SECTION("a mask and a bias of each pair") {
    call.extras.mask = Mask(at::rand({kAlignedItems, 1, L, S}).gt(0.2)) &
                       Mask::bias(at::randn({kAlignedItems, kAlignedHeads, L, S}).to(type)) &
                       Mask::key_keep(at::rand({kAlignedItems, S}).gt(0.1));
  }
  SECTION("a bias of all items") {
    call.extras.mask = Mask::bias(at::randn({1, kAlignedHeads, L, S}));
    call.options.softcap = 3.0;
  }
  SECTION("a bias of queries") {
    call.extras.mask =
        Mask::bias(at::randn({kAlignedItems, 1, L, 1}).expand({kAlignedItems, kAlignedHeads, L, 1}));
  }
  SECTION("a bias of keys") {
    call.extras.mask = Mask::bias(at::randn({kAlignedItems, kAlignedHeads, 1, S}));
  }
  SECTION("functions of pairs") {
    const auto bias = captured(at::randn({kAlignedItems, 2 * S}));
    call.extras.score =
        score_mod([=](auto s, auto pair) { return s + bias(pair.batch, abs(pair.query - pair.key)); });
    call.extras.block_mask =
        mask_mod([](auto pair) { return (pair.query - pair.key != 3) & (pair.key + 2 < pair.keys); });
  }
  check_items(call, lengths);
}

TEST_CASE("a mask of documents skips tiles of each item by lengths", "[align]") {
  const Lengths lengths{{400, 300, 256, 257, 30}, {500, 300, 270, 256, 500}, 400, 500};
  auto call = call_of(lengths, at::kFloat);
  call.options.backend = Backend::Native;
  call.options.causal = Causal::BottomRight;
  call.extras.weights = GENERATE(Weights::None, Weights::Clean);
  const auto document = captured_indices(at::arange(500).div(130, "floor").to(at::kInt));
  call.extras.block_mask = mask_mod([=](auto pair) { return document(pair.query) == document(pair.key); });
  check_items(call, lengths);
  call.extras.mask =
      Mask::key_lengths(at::tensor(lengths.keys)) & Mask::query_lengths(at::tensor(lengths.queries));
  const auto notes = explain(call.q, call.k, call.v, call.options, call.extras).notes;
  CHECK(notes[0] ==
        "mask function mask_mod: 10 of 35 tiles of 128 x 128 pairs are skipped, and 2 need no test");
}

TEST_CASE("functions of pairs are told the lengths of their item", "[align]") {
  at::manual_seed(5);
  const auto backend = GENERATE(Backend::Native, Backend::Reference);
  const auto x = at::randn({2, 2, 9, 8}), lengths = at::tensor({9, 4}), rows = at::tensor({6, 7});
  const auto score = score_mod(
      [](auto s, auto pair) { return s + 0.5f * (pair.queries * pair.key - pair.keys * pair.query); });
  const auto y = attention(x, x, x, {.align = Align::Lengths, .backend = backend},
                           {.mask = Mask::key_lengths(lengths) & Mask::query_lengths(rows), .score = score})
                     .output;
  for (int64_t b = 0; b < 2; ++b) {
    const auto queries = rows[b].item<int64_t>(), keys = lengths[b].item<int64_t>();
    const auto first = std::max<int64_t>(queries - keys, 0);
    const auto i = at::arange(first, queries).unsqueeze(1) + keys - queries, j = at::arange(keys);
    const auto k = x.narrow(0, b, 1).slice(2, 0, keys);
    const auto bias = (0.5 * (queries * j - keys * i)).to(at::kFloat);
    CHECK_CLOSE(y[b].slice(1, first, queries),
                attention(x.narrow(0, b, 1).slice(2, first, queries), k, k, {.backend = Backend::Reference},
                          Mask::bias(bias))[0]);
  }
}

TEST_CASE("items by lengths add to a shared bias in one order", "[align]") {
  at::manual_seed(13);
  const int threads = at::get_num_threads();
  const auto x = at::randn({64, 1, 16, 32});
  const auto lengths = Mask::key_lengths(at::randint(1, 17, {64}, at::kLong));
  const auto gradient = [&](int count) {
    at::set_num_threads(count);
    const auto bias = at::zeros({16, 16}).requires_grad_();
    const auto y =
        attention(x, x, x, {.align = Align::Lengths, .backend = Backend::Native}, lengths & Mask::bias(bias));
    return torch::autograd::grad({(y * x).sum()}, {bias})[0];
  };
  const auto alone = gradient(1);
  for (int n = 0; n < 5; ++n) CHECK(bit_equal(gradient(8), alone));
  at::set_num_threads(threads);
}

TEST_CASE("queries at the top left stand at their own keys", "[align]") {
  at::manual_seed(6);
  const auto backend = GENERATE(Backend::Auto, Backend::Reference);
  const auto q = at::randn({2, 2, 5, 8}), k = at::randn({2, 2, 9, 8}), v = at::randn({2, 2, 9, 8});
  // The keys of the square call come first, so that both alignments are one there.
  const auto square = [&](const AttentionOptions& options, const AttentionExtras& extras) {
    return attention(q, k.slice(2, 0, 5), v.slice(2, 0, 5), options, extras).output;
  };
  const AttentionExtras slopes{.alibi_slopes = at::rand({2})};
  AttentionOptions options{.causal = Causal::TopLeft,
                           .window = {2, -1},
                           .dropout_stream = DropoutStream::Counter,
                           .backend = backend};
  CHECK_FALSE(bit_equal(attention(q, k, v, options, slopes).output, square(options, slopes)));
  options.align = Align::TopLeft;
  CHECK_CLOSE(attention(q, k, v, options, slopes).output, square(options, slopes));
  options.dropout_p = 0.5;
  at::manual_seed(7);
  const auto dropped = attention(q, k, v, options, slopes).output;
  at::manual_seed(7);
  CHECK_CLOSE(dropped, square(options, slopes));
  // The causal diagonal lies where `causal` says.
  const AttentionOptions apart{.causal = Causal::BottomRight, .align = Align::TopLeft, .backend = backend};
  CHECK_CLOSE(attention(q, k, v, apart), attention(q, k, v, {.causal = Causal::BottomRight}));
}

TEST_CASE("generation in batches: a cache with lengths serves each step", "[align]") {
  at::manual_seed(8);
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const auto lengths = at::tensor({7, 30, 19});
  const auto q = at::randn({3, 4, 2, 16}).to(type), k = at::randn({3, 2, 64, 16}).to(type),
             v = at::randn({3, 2, 64, 16}).to(type);
  for (auto& x : {k, v}) {
    for (int64_t b = 0; b < 3; ++b) x[b].slice(1, lengths[b].item<int64_t>()).fill_(kNaN);  // not yet written
  }
  const auto y =
      attention(q, k, v, {.causal = Causal::BottomRight, .window = {9, 0}, .align = Align::Lengths},
                Mask::key_lengths(lengths));
  for (int64_t b = 0; b < 3; ++b) {
    const auto cut = [&](const at::Tensor& x) {
      return x.narrow(0, b, 1).slice(2, 0, lengths[b].item<int64_t>());
    };
    CHECK(bit_equal(y[b], attention(q.narrow(0, b, 1), cut(k), cut(v),
                                    {.causal = Causal::BottomRight, .window = {9, 0}})[0]));
  }
}

TEST_CASE("lengths that shorten nothing give the bits of the call without them", "[align]") {
  at::manual_seed(10);
  const auto q = at::randn({2, 2, 5, 8}), k = at::randn({2, 2, 9, 8});
  const auto plain = attention(q, k, k, {.causal = Causal::BottomRight});
  const auto mask = Mask::key_lengths(at::tensor({9, 9})) & Mask::query_lengths(at::tensor({5, 5}));
  CHECK(bit_equal(attention(q, k, k, {.causal = Causal::BottomRight, .align = Align::Lengths}, mask), plain));
  CHECK(attention(q, k, k, {}, mask).equal(attention(q, k, k)));
  // More queries than keys: those before the first key see nothing, even without a causal mask.
  const auto y = attention(k, q, q, {.align = Align::Lengths}, Mask::key_lengths(at::tensor({5, 5})));
  CHECK(y.slice(2, 0, 4).eq(0).all().item<bool>());
  CHECK_CLOSE(y.slice(2, 4), attention(k.slice(2, 4), q, q));
}

TEST_CASE("alignment and query lengths are refused by name where they have no meaning", "[align]") {
  const auto x = at::randn({2, 2, 5, 8});
  const auto refusal = [&](const AttentionOptions& options, const AttentionExtras& extras = {}) {
    return value_error([&] { attention(x, x, x, options, extras); });
  };
  const auto lengths = Mask::key_lengths(at::tensor({5, 2}));
  CHECK(refusal({.align = Align::Lengths}) ==
        "attention: expected key_lengths (Mask::key_lengths) with Align::Lengths, got none");
  CHECK(refusal({}, {.mask = Mask::query_lengths(at::tensor({5, 6}))}) ==
        "attention: expected query_lengths in [0, 5], got 6");
  CHECK(refusal({}, {.mask = Mask::query_lengths(at::tensor({5}))}) ==
        "attention: expected query_lengths of shape (2,) (B), got (1,)");
  CHECK(type_error([] {
          Mask::query_lengths(at::ones({2}));
        }).starts_with("Mask::query_lengths: expected an integer"));
  const auto kept = BlockMask::kept(at::ones({5, 5}, at::kBool));
  CHECK(refusal({.align = Align::Lengths}, {.mask = lengths, .block_mask = kept}) ==
        "attention: expected a mask function as block_mask, got the tiles of BlockMask::kept, whose queries "
        "stand at "
        "i + S - L, not as this align says");
  CHECK(bit_equal(attention(x, x, x, {.align = Align::TopLeft}, {.block_mask = kept}).output,
                  attention(x, x, x)));
  CHECK(value_error([&] {
          attention_varlen(x[0].transpose(0, 1), x[0].transpose(0, 1), x[0].transpose(0, 1),
                           at::tensor({0, 5}), at::tensor({0, 5}), {.align = Align::Lengths});
        }) == "attention_varlen: expected key_lengths (Mask::key_lengths) with Align::Lengths, got none");
  CHECK(value_error([&] {
          linear_attention(x, x, x, {}, Mask::query_lengths(at::tensor({5, 2})));
        }).starts_with("linear_attention: expected a mask of whole keys"));
  auto layer = TransformerAttention(
      TransformerAttentionOptions(8, 2).attention({.causal = Causal::BottomRight, .align = Align::TopLeft}));
  CHECK(value_error([&] {
          const at::NoGradGuard no_grad;
          DenseKVCache cache({.num_kv_heads = 2, .head_dim = 4}, 8);
          layer->forward_cached(at::randn({1, 3, 8}), cache, 0);
        }) ==
        "TransformerAttention: expected queries at the bottom right or aligned by lengths with this cache, "
        "got align "
        "top-left");
}

TEST_CASE("a table of position biases counts from the bottom right alone", "[align]") {
  const auto layer = MultiHeadAttentionOptions(8, 8, 16, 0.0, 2).attention({.align = Align::TopLeft});
  CHECK(value_error([&] {
          MultiHeadAttention{MultiHeadAttentionOptions(layer).position_bias(RelativePositionBiasOptions(2))};
        }) ==
        "MultiHeadAttention: expected attention().align to stay bottom-right with a RelativePositionBias, "
        "whose table "
        "counts from there, got top-left");
  const MultiHeadAttention slopes(MultiHeadAttentionOptions(layer).position_bias(DistanceBiasOptions(2)));
}

TEST_CASE("kept tiles serve a call whose query lengths differ", "[align]") {
  at::manual_seed(12);
  const auto document = captured_indices(
      at::stack({at::arange(400).div(90, "floor"), at::arange(400).div(150, "floor")}).to(at::kInt));
  const auto mask =
      mask_mod([=](auto pair) { return document(pair.batch, pair.query) == document(pair.batch, pair.key); });
  const auto x = at::randn({2, 2, 400, 8});
  const auto kept = BlockMask::kept(mask, 2, 2, 400, 400);
  const AttentionExtras lengths{.mask = Mask::query_lengths(at::tensor({130, 400})), .block_mask = kept};
  const auto y = attention(x, x, x, {.backend = Backend::Native}, lengths).output;
  const auto all = attention(x, x, x, {.backend = Backend::Native}, {.block_mask = kept}).output;
  CHECK_CLOSE(y[0].slice(1, 0, 130), all[0].slice(1, 0, 130));
  CHECK(y[0].slice(1, 130).eq(0).all().item<bool>());
  CHECK(bit_equal(y[1], all[1]));
}

TEST_CASE("a recorded call by lengths gives its weights, scores and pairs", "[align][recorder]") {
  at::manual_seed(11);
  const auto x = at::randn({2, 2, 5, 8});
  AttentionExtras extras{
      .mask = Mask::key_lengths(at::tensor({5, 3})) & Mask::query_lengths(at::tensor({4, 4})),
      .weights = Weights::Clean};
  AttentionRecorder recorder;
  const auto weights =
      attention(x, x, x, {.causal = Causal::BottomRight, .align = Align::Lengths}, extras).weights;
  const auto& call = recorder.calls().at(0);
  CHECK_CLOSE(call.weights(), weights);
  CHECK(call.visible().equal(weights.gt(0)));
  CHECK(call.scores().eq(-kInfinity).equal(weights.eq(0)));
  const auto text = describe_mask(extras.mask, {.causal = Causal::BottomRight, .align = Align::Lengths}, 5, 5,
                                  {.batch = 1});
  CHECK(text ==
        "5 queries (down), 5 keys (across), batch item 1 of 2\n"
        ". . . . .\n"
        "x . . . .\n"
        "x x . . .\n"
        "x x x . .\n"
        ". . . . .\n"
        "x may attend, . may not\n"
        "3 of 10 queries of all batch items see no key, the first is query 4 of batch item 0; their weights "
        "and output "
        "are 0 (all of them are beyond the lengths of their items)\n"
        "1 of the other 1 batch items and heads differ\n");
  CHECK(explain(x, x, x, {.align = Align::Lengths}, extras).notes ==
        std::vector<std::string>{
            "3 of 10 queries of all batch items see no key, the first is query 4 of batch item 0; their "
            "weights and output are 0 (all of them are beyond the lengths of their items)"});
}
