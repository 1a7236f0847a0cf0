#include <array>
#include <limits>

#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <attentive/functional/attention_recorder.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/score/score_mod.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/naive_attention.h"
#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;

namespace {

RecordedAttention record(const OptionCall& call) {
  AttentionRecorder recorder;
  attention(call.q, call.k, call.v, call.options, call.extras);
  return recorder.calls().at(0);
}

// The results of the definition in float64, for the same rounded numbers.
AttentionResult definition_of(const OptionCall& call) {
  auto exact = cast(call, at::kDouble);
  exact.options.backend = Backend::Reference;
  exact.extras.weights = Weights::Clean;
  exact.extras.logsumexp = true;
  return attention(exact.q, exact.k, exact.v, exact.options, exact.extras);
}

void check_heads(const RecordedAttention& call) {
  std::vector<at::Tensor> weights, scores, visible, logsumexp;
  for (int64_t head = 0; head < call.heads(); ++head) {
    weights.push_back(call.weights(head));
    scores.push_back(call.scores(head));
    visible.push_back(call.visible(head));
    if (!call.linear) logsumexp.push_back(call.logsumexp(head));
  }
  CHECK_CLOSE(at::stack(weights, 1), call.weights());
  CHECK_CLOSE(at::stack(scores, 1), call.scores());
  CHECK(at::stack(visible, 1).equal(call.visible()));
  if (!call.linear) CHECK_CLOSE(at::stack(logsumexp, 1), call.logsumexp());
}

void check_recorded(const OptionCall& given, at::ScalarType type) {
  INFO("dtype " << c10::toString(type));
  const auto call = cast(given, type);
  const auto got = record(call);
  const auto want = definition_of(call);
  // Half types are computed in float32.
  const auto precision = type == at::kDouble ? at::kDouble : at::kFloat;
  CHECK(got.weights().scalar_type() == precision);
  CHECK(difference(got.weights(), want.weights, tolerance_of(precision)) == "");
  CHECK(difference(got.logsumexp(), want.logsumexp, tolerance_of(precision)) == "");
  CHECK_FALSE(got.weights().requires_grad());
  check_heads(got);

  const auto hidden = got.visible().bitwise_not();
  const auto shares = (got.scores() - got.logsumexp().unsqueeze(3)).exp().masked_fill(hidden, 0.0);
  CHECK(difference(shares, got.weights(), {0.0, 1e-5}) == "");
  // No weight of these calls is too small for its dtype.
  CHECK(got.weights().ne(0.0).equal(got.visible()));
  CHECK(got.scores().eq(-std::numeric_limits<double>::infinity()).equal(hidden));
}

constexpr std::array kRecordedTypes = {at::kDouble, at::kFloat, at::kBFloat16};

}  // namespace

TEST_CASE("recorded weights are the definition's for every option", "[recorder]") {
  for (const auto type : kRecordedTypes) check_recorded(plain_call(), type);
  const auto& cases = option_cases();
  const auto n = GENERATE_COPY(range(size_t{0}, cases.size()));
  INFO("option: " << cases[n].name);
  auto call = plain_call();
  cases[n].apply(call);
  for (const auto type : kRecordedTypes) check_recorded(call, type);
}

TEST_CASE("recorded weights are the definition's for every pair of options", "[recorder]") {
  const auto& cases = option_cases();
  const auto first = GENERATE_COPY(range(size_t{0}, cases.size()));
  for (size_t second = first + 1; second < cases.size(); ++second) {
    if (cases[first].group == cases[second].group) continue;
    INFO("options: " << cases[first].name << "; " << cases[second].name);
    auto call = plain_call();
    cases[first].apply(call);
    cases[second].apply(call);
    check_recorded(call, at::kFloat);
  }
}

TEST_CASE("recorded weights are those of scalar loops", "[recorder]") {
  auto call = plain_call();
  call.k = call.k.slice(1, 0, 2);
  call.v = call.v.slice(1, 0, 2);
  call.options = {.scale = 0.4, .causal = Causal::BottomRight, .window = {4, 0}, .softcap = 1.5};
  const auto keep = at::rand({2, 4, 7, 9}).gt(0.3);
  const auto bias = doubles({1, 4, 7, 9});
  call.extras.mask = Mask(keep) & Mask::bias(bias);
  call.extras.alibi_slopes = at::rand({4}, at::kDouble);
  call.extras.sinks = doubles({4});
  call.extras.weights = Weights::Clean;
  const auto want = naive_attention({.q = call.q,
                                     .k = call.k,
                                     .v = call.v,
                                     .options = call.options,
                                     .keep = keep,
                                     .bias = bias,
                                     .slopes = call.extras.alibi_slopes,
                                     .sinks = call.extras.sinks,
                                     .survivors = {}});
  const auto got = record(call);
  CHECK_CLOSE(got.weights(), want.weights);
  CHECK_CLOSE(got.logsumexp(), want.logsumexp);
  CHECK(got.scale() == 0.4);
  CHECK(record(plain_call()).scale() == 1.0 / std::sqrt(8.0));
}

TEST_CASE("recorded weights are those of the call's score and mask function", "[recorder][score]") {
  const auto type = GENERATE(at::kDouble, at::kFloat);
  auto call = plain_call();
  call.options.causal = Causal::BottomRight;
  auto numbers = doubles({2, 4, 9});
  const auto table = captured(numbers);
  auto documents = at::tensor({0, 0, 1, 1, 1, 0, 1, 0, 1}, at::kLong);
  const auto document = captured_indices(documents);
  call.extras.score =
      score_mod([=](auto s, auto pair) { return tanh(s) + table(pair.batch, pair.head, pair.key); }, "table");
  call.extras.block_mask =
      mask_mod([=](auto pair) { return (document(pair.key) == pair.head % 2) | (pair.key == pair.query); },
               "documents");
  check_recorded(call, type);
  // A later change of a captured tensor is not seen.
  const auto recorded = record(cast(call, type));
  CHECK(recorded.score.name() == "table");
  CHECK(recorded.mask_mod.name() == "documents");
  const auto weights = recorded.weights(), of_head = recorded.weights(3);
  const auto visible = recorded.visible();
  numbers.fill_(1);
  documents.fill_(1);
  CHECK(bit_equal(recorded.weights(), weights));
  CHECK(bit_equal(recorded.weights(3), of_head));
  CHECK(recorded.visible().equal(visible));
}

TEST_CASE("recorded scores of packed sequences know the number of their sequence", "[recorder][score]") {
  const auto q = doubles({7, 2, 4}), ends = at::tensor({0, 3, 7}, at::kLong);
  const auto scale = captured(at::tensor({0.5, -2.0}, at::kDouble));
  AttentionRecorder recorder;
  attention_varlen(q, q, q, ends, ends, {},
                   {.score = score_mod([=](auto s, auto pair) { return s * scale(pair.batch); })});
  REQUIRE(recorder.calls().size() == 2);
  for (int64_t n = 0; n < 2; ++n) {
    const auto& call = recorder.calls()[static_cast<size_t>(n)];
    const auto raw = at::matmul(call.q, call.k.transpose(2, 3)) / 2;
    CHECK_CLOSE(call.scores(), raw * (n == 0 ? 0.5 : -2.0));
  }
}

TEST_CASE("recorded weights of a call without softmax are its scores", "[recorder][score]") {
  const auto x = doubles({1, 2, 5, 4});
  AttentionRecorder recorder;
  const auto want = attention(x, x, x, {.causal = Causal::BottomRight},
                              {.score = score_mod([](auto s, auto) { return sigmoid(s); }),
                               .normalise = Normalise::None,
                               .weights = Weights::Clean})
                        .weights;
  const auto call = recorder.calls().at(0);
  CHECK_CLOSE(call.weights(), want);
  CHECK_CLOSE(at::matmul(call.weights(), x), attention(x, x, x, {.causal = Causal::BottomRight},
                                                       {.score = call.score, .normalise = Normalise::None})
                                                 .output);
  CHECK(value_error([&] { call.logsumexp(); }) ==
        "RecordedAttention: expected a softmax for logsumexp, got call 0 with Normalise::None");
}

TEST_CASE("a hidden key is told apart from a weight of zero", "[recorder]") {
  AttentionRecorder recorder;
  const auto x = at::zeros({1, 1, 1, 2});
  const auto keys = at::zeros({1, 1, 3, 2});
  const auto bias = at::tensor({0.0f, -200.0f, 0.0f}).view({1, 3});
  attention(x, keys, keys, {}, Mask::bias(bias) & Mask::key_lengths(at::tensor({2}, at::kLong)));
  const auto& call = recorder.calls().at(0);
  CHECK(call.weights().flatten().equal(at::tensor({1.0f, 0.0f, 0.0f})));
  CHECK(call.visible().flatten().equal(at::tensor({1, 1, 0}, at::kLong).to(at::kBool)));
  CHECK(call.scores().flatten()[1].item<float>() == -200.0f);
  CHECK(call.key_lengths.item<int64_t>() == 2);
}

TEST_CASE("a call of another rank is recorded as the rank-4 call that it means", "[recorder]") {
  AttentionRecorder recorder;
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{5, 4}, {3, 5, 4}, {2, 3, 6, 5, 4}}) {
    const auto x = doubles(sizes);
    recorder.clear();
    const auto want = attention(x, x, x, {}, {.weights = Weights::Clean}).weights;
    const auto got = recorder.calls().at(0).weights();
    CHECK(got.dim() == 4);
    CHECK(got.size(1) == (sizes.size() < 4 ? 1 : 6));
    CHECK_CLOSE(got.reshape(want.sizes()), want);
  }
}

TEST_CASE("recorded weights do not depend on the mode in which they are asked for", "[recorder]") {
  const auto call = record(cast(plain_call(), at::kFloat));
  const auto want = call.weights();
  {
    const c10::InferenceMode mode;
    CHECK(bit_equal(call.weights(), want));
    CHECK_FALSE(call.weights().is_inference());
  }
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto under_autocast = call.weights(), scores = call.scores();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK(bit_equal(under_autocast, want));
  CHECK(bit_equal(scores, call.scores()));
}

TEST_CASE("recorded linear attention holds the share of each key in its query's sum", "[recorder]") {
  const auto causal = GENERATE(Causal::None, Causal::BottomRight, Causal::TopLeft);
  const auto [queries, keys] = GENERATE(std::pair<int64_t, int64_t>{7, 7}, std::pair<int64_t, int64_t>{5, 9},
                                        std::pair<int64_t, int64_t>{9, 5});
  const double eps = GENERATE(0.0, 0.25);
  INFO(to_string(causal) << ", " << queries << " queries, " << keys << " keys, eps " << eps);
  const auto q = doubles({2, 4, queries, 3}), k = doubles({2, 2, keys, 3}), v = doubles({2, 2, keys, 6});
  const auto mask = Mask::key_lengths(at::tensor({keys, keys - 2}, at::kLong));
  AttentionRecorder recorder;
  const auto output = linear_attention(q, k, v, {.causal = causal, .eps = eps}, mask);
  REQUIRE(recorder.calls().size() == 1);
  const auto& call = recorder.calls()[0];
  CHECK(call.linear);
  CHECK(call.scale() == 1.0);
  CHECK_CLOSE(call.q, at::elu(q) + 1);
  CHECK_CLOSE(at::matmul(call.weights(), v.repeat_interleave(2, 1)), output);

  const auto i = at::arange(queries).unsqueeze(1), j = at::arange(keys);
  auto visible = at::ones({queries, keys}, at::kBool);
  if (causal == Causal::BottomRight) visible = j.le(i + (keys - queries));
  if (causal == Causal::TopLeft) visible = j.le(i);
  const auto real = j.lt(at::tensor({keys, keys - 2}, at::kLong).view({2, 1, 1, 1}));
  CHECK(call.visible().equal(visible.bitwise_and(real).expand({2, 4, queries, keys})));
  CHECK(call.scores().ne(0.0).equal(call.visible()));
  check_heads(call);
  CHECK(value_error([&] { call.logsumexp(); }) ==
        "RecordedAttention: expected a softmax for logsumexp, got call 0, which is linear attention: its "
        "weights are shares of a sum of products");
}

TEST_CASE("recorded linear attention keeps the features of its own map", "[recorder]") {
  const auto q = doubles({1, 2, 4, 3}), k = doubles({1, 2, 4, 3}), v = doubles({1, 2, 4, 5});
  const auto map = [](const at::Tensor& x) { return at::relu(at::matmul(x, at::ones({3, 8}, x.options()))); };
  AttentionRecorder recorder;
  const auto output = linear_attention(q, k, v, {.feature_map = map});
  const auto& call = recorder.calls().at(0);
  CHECK(call.q.sizes() == at::IntArrayRef({1, 2, 4, 8}));
  CHECK_CLOSE(call.k, map(k));
  CHECK_CLOSE(at::matmul(call.weights(), v), output);
}

TEST_CASE("a head that a recorded call does not have is refused", "[recorder]") {
  const auto call = record(plain_call());
  const std::string range = "RecordedAttention: expected a head in [0, 4), got ";
  CHECK(value_error([&] { call.weights(4); }) == range + "4");
  CHECK(value_error([&] { call.visible(-1); }) == range + "-1");
  const auto empty = "RecordedAttention: expected q to be a tensor, got an undefined one";
  CHECK(value_error([] { RecordedAttention().weights(); }) == empty);
  CHECK(value_error([] { RecordedAttention().weights(0); }) == empty);
}
