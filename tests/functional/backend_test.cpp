#include <limits>
#include <memory>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/explain.h>
#include <attentive/models/gpt.h>
#include <attentive/score/score_mod.h>

#include "functional/attention_part.h"
#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

at::Tensor random(at::IntArrayRef sizes) {
  return at::randn(sizes);
}

Explanation::Candidate find(const Explanation& explanation, Backend backend) {
  for (const auto& candidate : explanation.candidates) {
    if (candidate.backend == backend) return candidate;
  }
  return {backend, false, "absent"};
}

}  // namespace

TEST_CASE("Backend::Torch equals the reference where it does not refuse", "[backend][torch]") {
  at::manual_seed(2);
  auto q = random({2, 4, 9, 8}), k = random({2, 2, 9, 8}), v = random({2, 2, 9, 8});
  AttentionOptions options;
  AttentionExtras extras;
  SECTION("plain, grouped heads") {}
  SECTION("scale") {
    options.scale = -0.4;
  }
  SECTION("causal") {
    options.causal = GENERATE(Causal::BottomRight, Causal::TopLeft);
  }
  SECTION("causal with fewer queries") {
    q = q.slice(2, 0, 5);
    options.causal = GENERATE(Causal::BottomRight, Causal::TopLeft);
  }
  SECTION("causal with fewer keys: queries without keys") {
    k = k.slice(2, 0, 5);
    v = v.slice(2, 0, 5);
    options.causal = GENERATE(Causal::BottomRight, Causal::TopLeft);
  }
  SECTION("one query") {
    q = q.slice(2, 0, 1);
    options.causal = Causal::BottomRight;
  }
  SECTION("keep mask with an empty row") {
    auto keep = at::rand({2, 4, 9, 9}).gt(0.4);
    keep.select(2, 3).fill_(false);
    extras.mask = keep;
  }
  SECTION("key mask") {
    extras.mask = Mask::key_keep(at::rand({2, 9}).gt(0.3));
  }
  SECTION("bias") {
    extras.mask = Mask::bias(random({4, 9, 9}).unsqueeze(0));
  }
  SECTION("bias, keep and causal") {
    extras.mask = Mask::bias(random({9, 9})) & Mask::keep(at::rand({9, 9}).gt(0.3));
    options.causal = Causal::BottomRight;
  }
  const auto run = [&](Backend backend) {
    options.backend = backend;
    std::vector<at::Tensor> leaves;
    for (const auto& x : {q, k, v}) leaves.push_back(x.detach().clone().requires_grad_(true));
    extras.logsumexp = false;
    const auto output = attention(leaves[0], leaves[1], leaves[2], options, extras).output;
    output.square().sum().backward();
    const at::NoGradGuard no_grad;
    extras.logsumexp = true;
    const auto lse = attention(q, k, v, options, extras).logsumexp;
    return std::vector<at::Tensor>{output, lse, leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
  };
  CHECK(find(explain(q, k, v, options, extras), Backend::Torch).available);
  const auto want = run(Backend::Reference), got = run(Backend::Torch);
  for (size_t n = 0; n < want.size(); ++n) {
    INFO("result " << n << " (output, logsumexp, gradients of q, k, v)");
    CHECK_WITHIN(got[n], want[n], {1e-5, n < 2 ? 2e-6 : 5e-6});
  }
}

TEST_CASE("Backend::Torch refuses what it cannot express, with the reason", "[backend][torch][errors]") {
  const auto q = random({1, 2, 4, 8}), k = random({1, 2, 6, 8});
  auto v = random({1, 2, 6, 8});
  AttentionOptions options{.backend = Backend::Torch};
  AttentionExtras extras;
  const char* reason = "";
  SECTION("softcap") {
    options.softcap = 1.0;
    reason = "no softcap";
  }
  SECTION("dropout") {
    options.dropout_p = 0.1;
    reason = "no dropout";
  }
  SECTION("window") {
    options.window = {2, 0};
    reason = "no window";
  }
  SECTION("alibi") {
    extras.alibi_slopes = at::ones({2});
    reason = "no ALiBi";
  }
  SECTION("sinks") {
    options.softmax_plus_one = true;
    reason = "no sinks";
  }
  SECTION("weights") {
    extras.weights = Weights::Clean;
    reason = "cannot return the weights";
  }
  SECTION("value dim") {
    v = random({1, 2, 6, 3});
    reason = "need v to have the head_dim of q";
  }
  SECTION("masked NaN") {
    v[0][0][5] = std::numeric_limits<float>::quiet_NaN();
    extras.mask = Mask::key_lengths(at::ones({1}, at::kLong));
    reason = "NaN or Inf";
  }
  SECTION("masked score that overflows") {
    k[0][0][5].fill_(1e38);
    extras.mask = Mask::key_lengths(at::ones({1}, at::kLong));
    reason = "products may overflow";
  }
  SECTION("score that its scale makes overflow") {
    k[0][0][5].fill_(1e10);
    options.scale = 1e30;
    extras.mask = Mask::key_lengths(at::ones({1}, at::kLong));
    reason = "products may overflow";
  }
  SECTION("masked value whose product with a gradient may overflow") {
    v[0][0][5].fill_(1e38);
    v.requires_grad_(true);
    extras.mask = Mask::key_lengths(at::ones({1}, at::kLong));
    reason = "products may overflow";
  }
  SECTION("causal flag and a negative scale") {
    options.causal = Causal::TopLeft;
    options.scale = -0.5;
    reason = "hides scores with -inf before scaling";
  }
  SECTION("bias with gradient") {
    extras.mask = Mask::bias(at::randn({4, 6}).requires_grad_(true));
    reason = "computes no gradient for the bias";
  }
  CHECK_THROWS_MATCHES(attention(q, k, v, options, extras), c10::ValueError,
                       MessageMatches(ContainsSubstring("backend torch cannot express this call") &&
                                      ContainsSubstring(reason)));
  options.backend = Backend::Auto;
  const auto explanation = explain(q, k, v, options, extras);
  CHECK(explanation.chosen != Backend::Torch);
  CHECK_THAT(find(explanation, Backend::Torch).reason, ContainsSubstring(reason));
  CHECK_NOTHROW(attention(q, k, v, options, extras));
}

TEST_CASE("Backend::Torch keeps what is large and harmless", "[backend][torch]") {
  const auto q = random({1, 2, 4, 8});
  auto k = random({1, 2, 6, 8}), v = random({1, 2, 6, 8});
  k[0][0][5].fill_(1e30);
  v[0][0][5].fill_(1e38);
  const auto mask = Mask::key_lengths(at::full({1}, 5, at::kLong));
  const auto run = [&](Backend backend) { return attention(q, k, v, {.backend = backend}, mask); };
  CHECK_CLOSE(run(Backend::Torch), run(Backend::Reference));
  v[0][0][5].fill_(1e15);
  v.requires_grad_(true);
  CHECK_CLOSE(run(Backend::Torch), run(Backend::Reference));
}

TEST_CASE("autocast casts the inputs, and the reference still accumulates in float32",
          "[backend][autocast]") {
  const auto backend = GENERATE(Backend::Reference, Backend::Torch);
  const auto q = random({1, 2, 32, 16}), k = random({1, 2, 32, 16}), v = random({1, 2, 32, 16});
  const AttentionOptions options{.backend = backend};
  const auto bf16 = [](const at::Tensor& x) { return x.to(at::kBFloat16); };
  const auto want = attention(bf16(q), bf16(k), bf16(v), options);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto got = attention(q, k, v, options);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK(got.scalar_type() == at::kBFloat16);
  CHECK(bit_equal(got, want));
}

TEST_CASE("every backend and dtype computes under InferenceMode, and trains afterwards", "[backend]") {
  const auto backend = GENERATE(Backend::Auto, Backend::Torch, Backend::Native, Backend::Reference);
  const auto type = GENERATE(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf);
  const bool causal = GENERATE(false, true), leaf = GENERATE(false, true);
  const AttentionOptions options{.causal = causal ? Causal::BottomRight : Causal::None, .backend = backend};
  at::manual_seed(6);
  const auto x = random({1, 2, 6, 8}).to(type).requires_grad_(leaf);
  if (backend != Backend::Auto && !find(explain(x, x, x, {.causal = options.causal}), backend).available)
    return;
  INFO("backend " << to_string(backend) << ", dtype " << c10::toString(type));
  const auto mask = Mask::key_lengths(at::full({1}, 4, at::kLong));
  at::Tensor plain, masked;
  {
    const at::NoGradGuard no_grad;
    plain = attention(x, x, x, options);
    masked = attention(x, x, x, options, mask);
  }
  {
    const c10::InferenceMode inference;
    const auto inside = x.clone();
    REQUIRE(inside.is_inference());
    for (const auto& q : {x, inside}) {
      CHECK(bit_equal(attention(q, q, q, options), plain));
      CHECK(bit_equal(attention(q, q, q, options, mask), masked));
    }
  }
  if (leaf) CHECK_NOTHROW(attention(x, x, x, options, mask).sum().backward());
}

// Parts of a call: the score and mask functions of the whole call see the places of the whole sequence.

using namespace attentive::test;

namespace {

constexpr int64_t kParts = 3, kRows = 140, kTokens = kParts * kRows, kHeads = 4;

struct Whole {
  at::Tensor q, k, v;
  AttentionOptions options;
  AttentionExtras extras;

  explicit Whole(Backend backend) {
    at::manual_seed(4);
    q = at::randn({2, kHeads, kTokens, 8});
    k = at::randn({2, 2, kTokens, 8});
    v = at::randn({2, 2, kTokens, 5});
    options.backend = backend;
    const auto table = captured(at::randn({kHeads, kTokens}));
    const auto document = captured_indices(at::randint(3, {2, kTokens}));
    extras.score = score_mod(
        [=](auto s, auto pair) {
          return s * 0.7f + table(pair.head, pair.key) - 0.02f * abs(pair.query - pair.key) +
                 where(pair.query == pair.queries - 1, 1.5f, 0.0f);
        },
        "table");
    extras.block_mask = mask_mod(
        [=](auto pair) {
          return (document(pair.batch, pair.query) == document(pair.batch, pair.key)) |
                 (pair.key == pair.keys - 1) | (pair.key == pair.query);
        },
        "documents");
    extras.logsumexp = true;
  }

  static at::Tensor rows(const at::Tensor& x, int64_t part) { return x.narrow(2, part * kRows, kRows); }
  WholeAttention attention_in_parts() const {
    return {"caller", rows(q, 0), rows(k, 0), rows(v, 0), options, extras, kParts};
  }
};

}  // namespace

TEST_CASE("parts of queries and keys see the places of the whole call", "[attention_part][score]") {
  const auto backend = GENERATE(Backend::Native, Backend::Reference);
  const bool causal = GENERATE(false, true);
  INFO(to_string(backend) << (causal ? ", causal" : ""));
  Whole whole(backend);
  if (causal) whole.options.causal = Causal::BottomRight;
  const auto want = attention(whole.q, whole.k, whole.v, whole.options, whole.extras);
  const auto parts = whole.attention_in_parts();
  std::vector<at::Tensor> outputs, logsumexps;
  for (int64_t i = 0; i < kParts; ++i) {
    std::vector<at::Tensor> of_keys, sums;
    for (int64_t j = 0; j < (causal ? i + 1 : kParts); ++j) {
      const auto part = parts.part(Whole::rows(whole.q, i), Whole::rows(whole.k, j), Whole::rows(whole.v, j),
                                   {.query = i * kRows, .key = j * kRows});
      of_keys.push_back(part.output);
      sums.push_back(part.logsumexp);
    }
    const auto all = at::stack(sums);
    logsumexps.push_back(at::logsumexp(all, 0));
    const auto shares = (all - logsumexps.back()).exp().unsqueeze(4);
    outputs.push_back((at::stack(of_keys) * shares).sum(0));
  }
  CHECK_CLOSE(at::cat(outputs, 2), want.output);
  CHECK_CLOSE(at::cat(logsumexps, 2), want.logsumexp);
}

TEST_CASE("parts of queries and of heads have the gradients of the whole call", "[attention_part][score]") {
  const auto backend = GENERATE(Backend::Native, Backend::Reference);
  INFO(to_string(backend));
  Whole whole(backend);
  const std::vector<at::Tensor> leaves = {whole.q.requires_grad_(), whole.k.requires_grad_(),
                                          whole.v.requires_grad_()};
  const auto parts = whole.attention_in_parts();
  const auto gradients = [&](const at::Tensor& output) {
    return torch::autograd::grad({output.square().sum()}, leaves);
  };
  const auto want = gradients(attention(whole.q, whole.k, whole.v, whole.options, whole.extras).output);
  std::vector<at::Tensor> of_rows, of_heads;
  for (int64_t i = 0; i < kParts; ++i) {
    const auto q = Whole::rows(whole.q, i);
    of_rows.push_back(parts.part(q, whole.k, whole.v, {.query = i * kRows}).output);
  }
  for (int64_t head = 0; head < kHeads; ++head) {
    const auto of_head = [&](const at::Tensor& x) { return x.narrow(1, head * x.size(1) / kHeads, 1); };
    of_heads.push_back(
        parts.part(of_head(whole.q), of_head(whole.k), of_head(whole.v), {.head = head}).output);
  }
  for (const auto& output : {at::cat(of_rows, 2), at::cat(of_heads, 1)}) {
    const auto got = gradients(output);
    for (size_t n = 0; n < leaves.size(); ++n) CHECK_WITHIN(got[n], want[n], {1e-5, 5e-6});
  }
}

TEST_CASE("a kept mask of the whole sequence hides the same pairs in its parts", "[attention_part][score]") {
  Whole whole(Backend::Native);
  whole.extras.block_mask = mask_mod([](auto pair) { return abs(pair.query - pair.key) < 20; });
  const auto want = attention(whole.q, whole.k, whole.v, whole.options, whole.extras).output;
  const auto kept = BlockMask::kept(whole.extras.block_mask.mask(), 1, 1, kTokens, kTokens);
  CHECK(kept.count().empty > 0);
  const auto place = at::arange(kTokens);
  const auto of_tensor = BlockMask::kept((place.unsqueeze(1) - place).abs().lt(20));
  for (const auto& mask : {kept, of_tensor}) {
    for (const auto backend : {Backend::Native, Backend::Reference}) {
      INFO(mask.mask().name() << ", " << to_string(backend));
      whole.options.backend = backend;
      whole.extras.block_mask = mask;
      const auto last =
          whole.attention_in_parts().part(Whole::rows(whole.q, 2), whole.k, whole.v, {.query = 2 * kRows});
      CHECK_CLOSE(last.output, Whole::rows(want, 2));
    }
  }
}

TEST_CASE("a call in parts refuses what its parts cannot compute", "[attention_part][score][errors]") {
  Whole whole(Backend::Auto);
  const auto numbers = at::randn({kTokens}).requires_grad_();
  const auto table = captured(numbers);
  whole.extras.score = score_mod([=](auto s, auto pair) { return s + table(pair.key); }, "learned");
  CHECK(
      value_error([&] { whole.attention_in_parts(); }) ==
      "caller: expected the score \"learned\" to capture tensors without a gradient, got one of shape (420,) "
      "that requires it");
  {
    const at::NoGradGuard no_grad;
    CHECK_NOTHROW(whole.attention_in_parts());
  }
  Whole unnormalised(Backend::Auto);
  unnormalised.extras.logsumexp = false;
  unnormalised.extras.normalise = Normalise::None;
  CHECK(value_error([&] { unnormalised.attention_in_parts(); }) ==
        "caller: expected Normalise::Softmax, got Normalise::None: parts are joined by their logsumexps");
}

TEST_CASE("the text of a call in parts tells functions and captured numbers apart",
          "[attention_part][score]") {
  const Whole one(Backend::Auto);
  Whole other(Backend::Auto);
  const auto text = one.attention_in_parts().text();
  CHECK(text == other.attention_in_parts().text());
  CHECK(text.find("score: table\ncaptured: (4, 420), values ") != std::string::npos);
  CHECK(text.find("mask function: documents\ncaptured: (2, 420), values ") != std::string::npos);
  const auto table = captured(at::randn({kHeads, kTokens}));
  other.extras.score = score_mod([=](auto s, auto pair) { return s + table(pair.head, pair.key); }, "table");
  CHECK(text != other.attention_in_parts().text());
  other.extras.score = {};
  CHECK(other.attention_in_parts().text().find("score: none\n") != std::string::npos);
}

namespace {

at::Tensor swapped(const at::Tensor& x, int64_t dim) {
  const auto half = x.size(dim) / 2;
  return at::cat({x.narrow(dim, half, half), x.narrow(dim, 0, half)}, dim);
}

// A context that holds the whole sequence in one process, with its second half first.
class Swapped final : public AttentionContext {
 public:
  int64_t size() const override { return size_; }
  std::vector<Run> runs(int64_t tokens) const override { return {{tokens / 2, tokens / 2}, {0, tokens / 2}}; }
  AttentionResult attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionOptions& options, const AttentionExtras& extras) override {
    auto result = attentive::attention(swapped(q, 2), swapped(k, 2), swapped(v, 2), options, extras);
    result.output = swapped(result.output, 2);
    return result;
  }

  int64_t size_ = 1;
};

}  // namespace

TEST_CASE("GPT computes a sequence whose tokens are in another order in its context", "[gpt][context]") {
  const auto positions = GENERATE(GPTPositions::Learned, GPTPositions::Rotary);
  at::manual_seed(5);
  GPT model(GPTOptions(17, 12, 16, 4, 2).positions(positions).num_kv_heads(2));
  const auto ids = at::randint(17, {2, 12});
  const auto want = model->forward(ids);
  const auto context = std::make_shared<Swapped>();
  model->set_context(context);
  CHECK(difference(swapped(model->forward(swapped(ids, 1)), 1), want) == "");
  CHECK_THROWS_WITH(model->forward(ids, Logits::All, {at::arange(11, 13)}),
                    ContainsSubstring("GPT: expected no padding in a part of a longer sequence"));
  const auto cache = model->make_cache(2);
  CHECK_THROWS_WITH(model->forward_cached(ids, *cache), ContainsSubstring("expected no cache"));
  model->options.checkpoint(1);
  CHECK_THROWS_WITH(model->forward(ids),
                    ContainsSubstring("GPT: expected checkpoint = 0 for a part of a longer sequence, got 1"));
  model->options.checkpoint(0);
  context->size_ = 2;
  CHECK_THROWS_WITH(model->forward(ids), ContainsSubstring("context_length"));
  model->set_context(nullptr);
  CHECK(bit_equal(model->forward(ids), want));
}
