// Parts of a call: the score and mask functions of the whole call see the places of the whole sequence.

#include "functional/attention_part.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/score/score_mod.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
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
