#include <array>
#include <limits>
#include <memory>
#include <stdexcept>
#include <thread>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
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
#include <torch/csrc/autograd/function.h>

#include <attentive/core/options.h>
#include <attentive/functional/attention_recorder.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/score/score_mod.h>

#include "functional/recording.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/naive_attention.h"
#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;

namespace {

at::Tensor attend_to_itself(const at::Tensor& x) {
  return attention(x, x, x);
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || bit_equal(a, b));
}

void check_same(const OptionResult& got, const OptionResult& want) {
  CHECK(got.refused == want.refused);
  CHECK(got.reason == want.reason);
  for (const auto result : {&OptionResult::result, &OptionResult::inference}) {
    CHECK(same((got.*result).output, (want.*result).output));
    CHECK(same((got.*result).weights, (want.*result).weights));
    CHECK(same((got.*result).logsumexp, (want.*result).logsumexp));
  }
  REQUIRE(got.gradients.size() == want.gradients.size());
  for (size_t n = 0; n < want.gradients.size(); ++n) CHECK(same(got.gradients[n], want.gradients[n]));
  if (want.refused) return;
  // The name of the graph node shows which backend ran.
  const auto& node = want.result.output.grad_fn();
  CHECK((got.result.output.grad_fn() ? got.result.output.grad_fn()->name() : "") ==
        (node ? node->name() : ""));
}

// Whether a copy has separate memory that is no larger than its numbers.
bool compact(const at::Tensor& copy) {
  return copy.storage().nbytes() == copy.nbytes() && !copy.requires_grad() && !copy.is_inference();
}

}  // namespace

TEST_CASE("a recorder changes no backend and no bit, forward or backward", "[recorder]") {
  const auto& cases = option_cases();
  const auto n = GENERATE_COPY(range(size_t{0}, cases.size()));
  INFO("option: " << cases[n].name);
  auto exact = plain_call();
  cases[n].apply(exact);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const auto backend : {Backend::Auto, Backend::Reference, Backend::Torch, Backend::Native}) {
      INFO("dtype " << c10::toString(type) << ", backend " << to_string(backend));
      const auto call = cast(exact, type);
      const auto want = run_on(call, backend);
      const AttentionRecorder recorder;
      const auto got = run_on(call, backend);
      CHECK(recorder.calls().size() == (want.refused ? 0 : 2));  // one with a graph, one without
      check_same(got, want);
      if (want.refused) continue;
      const auto recorded = recorder.calls();
      REQUIRE(recorded[0].backend.has_value());
      REQUIRE(recorded[1].backend.has_value());
      if (backend != Backend::Auto) {
        CHECK(*recorded[0].backend == backend);
        CHECK(*recorded[1].backend == backend);
        continue;
      }
      // Forcing what Auto is said to have chosen, with a graph and without one, gives the same bits.
      const auto with_graph = run_on(call, *recorded[0].backend),
                 without = run_on(call, *recorded[1].backend);
      CHECK_FALSE(with_graph.refused);
      CHECK(same(with_graph.result.output, want.result.output));
      if (!without.refused) CHECK(same(without.inference.output, want.inference.output));
    }
  }
}

TEST_CASE("a recorder draws nothing", "[recorder]") {
  const auto x = at::randn({2, 3, 5, 4});
  for (const auto stream : {DropoutStream::Aten, DropoutStream::Counter}) {
    const AttentionOptions options = {.dropout_p = 0.5, .dropout_stream = stream};
    at::manual_seed(4);
    const auto want = attention(x, x, x, options);
    const auto next = at::rand({3});
    AttentionRecorder recorder;
    at::manual_seed(4);
    CHECK(bit_equal(attention(x, x, x, options), want));
    // The recorded weights are those before dropout.
    CHECK_CLOSE(recorder.calls().at(0).weights().sum(-1), at::ones({2, 3, 5}));
    CHECK(recorder.calls()[0].options.dropout_p == 0.5);
    CHECK(bit_equal(at::rand({3}), next));
  }
}

TEST_CASE("recorded tensors are copies, of no more memory than their numbers", "[recorder]") {
  auto whole = at::randn({2, 4, 9, 3 * 8}).requires_grad_(true);
  const auto part = [&](int64_t n) { return whole.slice(3, 8 * n, 8 * n + 8); };
  auto keep = at::rand({1, 1, 9, 9}).gt(0.3), real = at::ones({2, 9}, at::kBool);
  auto lengths = at::tensor({9, 6}, at::kLong);
  auto bias = at::randn({1, 1, 1, 9}).requires_grad_(true), slopes = at::rand({4}), sinks = at::randn({4});
  AttentionExtras extras;
  extras.mask = Mask(keep.expand({2, 4, 9, 9})) & Mask::key_keep(real) & Mask::key_lengths(lengths) &
                Mask::bias(bias.expand({2, 4, 9, 9}));
  extras.alibi_slopes = slopes;
  extras.sinks = sinks;
  AttentionRecorder recorder;
  attention(part(0), part(1).slice(1, 0, 2), part(2).slice(1, 0, 2), {}, extras);
  const auto& call = recorder.calls().at(0);
  for (const auto& copy : {call.q, call.k, call.keep, call.bias, call.key_keep, call.key_lengths,
                           call.alibi_slopes, call.sinks}) {
    CHECK(compact(copy));
  }
  CHECK(call.k.sizes() == at::IntArrayRef({2, 2, 9, 8}));
  CHECK(call.keep.sizes() == at::IntArrayRef({1, 1, 9, 9}));
  CHECK(call.bias.sizes() == at::IntArrayRef({1, 1, 1, 9}));

  const auto weights = call.weights(), scores = call.scores();
  {
    const at::NoGradGuard guard;
    for (auto* x : {&whole, &bias, &slopes, &sinks}) x->fill_(3.0);
    keep.fill_(false);
    real.fill_(false);
    lengths.fill_(0);
  }
  CHECK(bit_equal(call.weights(), weights));
  CHECK(bit_equal(call.scores(), scores));
}

TEST_CASE("without a root calls are numbered", "[recorder]") {
  AttentionRecorder recorder;
  const auto x = at::randn({4, 3});
  for (int n = 0; n < 3; ++n) attend_to_itself(x);
  linear_attention(x, x, x);
  REQUIRE(recorder.calls().size() == 4);
  CHECK(recorder.calls()[0].path == "call 0");
  CHECK(recorder.calls()[3].path == "call 3");
  CHECK(recorder.calls()[3].linear);
  CHECK_FALSE(recorder.calls()[3].backend);
  CHECK_FALSE(recorder.calls()[2].linear);
  CHECK(recorder.calls()[2].number == 2);
  const auto kept = recorder.calls()[2];
  recorder.clear();
  CHECK(recorder.calls().empty());
  CHECK(recorder.seen() == 0);
  attend_to_itself(x);
  CHECK(recorder.calls().at(0).path == "call 0");
  CHECK_CLOSE(kept.weights().sum(-1), at::ones({1, 1, 4}));
}

TEST_CASE("calls are chosen by a pattern and limited in number", "[recorder]") {
  const auto x = at::randn({4, 3});
  AttentionRecorder two({.most_calls = 2}), none({.most_calls = 0}), late({.layers = "call [2-9]"}),
      one({.layers = "call [2-9]", .most_calls = 1});
  for (int n = 0; n < 4; ++n) attend_to_itself(x);
  CHECK(two.calls().size() == 2);
  CHECK(two.calls()[1].number == 1);
  CHECK(none.calls().empty());
  for (const auto* recorder : {&two, &none, &late, &one}) CHECK(recorder->seen() == 4);
  REQUIRE(late.calls().size() == 2);
  CHECK(late.calls()[0].path == "call 2");
  CHECK(late.calls()[1].path == "call 3");
  REQUIRE(one.calls().size() == 1);
  CHECK(one.calls()[0].number == 2);
  CHECK(value_error([] { AttentionRecorder recorder({.most_calls = -1}); }) ==
        "AttentionRecorder: expected most_calls >= 0, got -1");
  CHECK(late.calls()[0].q.data_ptr() == one.calls()[0].q.data_ptr());  // one copy for all recorders
}

TEST_CASE("packed sequences are recorded one by one", "[recorder]") {
  const auto q = at::randn({11, 4, 8}), k = at::randn({14, 2, 8}), v = at::randn({14, 2, 5});
  const auto ends_q = at::tensor({0, 4, 4, 5, 11}, at::kInt), ends_k = at::tensor({0, 6, 8, 8, 14}, at::kInt);
  AttentionExtras extras;
  extras.logsumexp = true;
  AttentionRecorder recorder;
  const auto result = attention_varlen(q, k, v, ends_q, ends_k, {.causal = Causal::BottomRight}, extras);
  REQUIRE(recorder.calls().size() == 4);
  std::vector<at::Tensor> outputs, logsumexps;
  for (int64_t n = 0; n < 4; ++n) {
    const auto& call = recorder.calls()[static_cast<size_t>(n)];
    CHECK(call.sequence == n);
    CHECK(compact(call.k));
    const auto values = v.slice(0, ends_k[n].item<int64_t>(), ends_k[n + 1].item<int64_t>()).transpose(0, 1);
    outputs.push_back(call.weights()[0].matmul(values.repeat_interleave(2, 0)).transpose(0, 1));
    logsumexps.push_back(call.logsumexp()[0]);
  }
  CHECK_CLOSE(at::cat(outputs), result.output);
  CHECK_CLOSE(at::cat(logsumexps, 1), result.logsumexp);

  recorder.clear();
  const auto start = at::tensor({0}, at::kInt);
  attention_varlen(q.slice(0, 0, 0), k.slice(0, 0, 0), v.slice(0, 0, 0), start, start);
  CHECK(recorder.seen() == 0);
  attend_to_itself(q);
  CHECK_FALSE(recorder.calls().at(0).sequence);
}

TEST_CASE("recorders nest, and end in any order", "[recorder]") {
  const auto x = at::randn({4, 3});
  REQUIRE_FALSE(recording::wanted());
  auto outer = std::make_unique<AttentionRecorder>();
  attend_to_itself(x);
  auto inner = std::make_unique<AttentionRecorder>();
  attend_to_itself(x);
  CHECK(outer->calls().size() == 2);
  CHECK(inner->calls().size() == 1);
  CHECK(inner->calls()[0].q.data_ptr() == outer->calls()[1].q.data_ptr());
  outer.reset();
  attend_to_itself(x);
  CHECK(inner->calls().size() == 2);
  CHECK(recording::wanted());
  inner.reset();
  CHECK_FALSE(recording::wanted());
  attend_to_itself(x);
}

TEST_CASE("a recorder sees its own thread's calls alone", "[recorder]") {
  const auto x = at::randn({4, 3});
  const AttentionRecorder here;
  size_t there = 0;
  std::thread([&] {
    CHECK_FALSE(recording::wanted());
    attend_to_itself(x);
    const AttentionRecorder recorder;
    attend_to_itself(x);
    attend_to_itself(x);
    there = recorder.calls().size();
  }).join();
  CHECK(there == 2);
  CHECK(here.calls().empty());
}

TEST_CASE("a recorder may end on another thread, or after its own", "[recorder]") {
  const auto x = at::randn({4, 3});
  auto here = std::make_unique<AttentionRecorder>();
  std::unique_ptr<AttentionRecorder> there;
  std::thread([&] {
    there = std::make_unique<AttentionRecorder>();
    attend_to_itself(x);
    here.reset();
  }).join();
  attend_to_itself(x);  // this thread now drops the recording
  CHECK_FALSE(recording::wanted());
  CHECK(there->calls().size() == 1);
  there.reset();
}

TEST_CASE("a call that throws is not recorded, and a recorder ends with the block it is in", "[recorder]") {
  const auto x = at::randn({4, 3});
  AttentionRecorder recorder;
  attend_to_itself(x);
  CHECK_THROWS_AS(attention(x, x, x, {.scale = 0.0}), c10::ValueError);
  CHECK(recorder.calls().size() == 1);
  try {
    const AttentionRecorder inner;
    attend_to_itself(x);
    throw std::runtime_error("in the middle of a forward pass");
  } catch (const std::runtime_error&) {
  }
  attend_to_itself(x);
  CHECK(recorder.calls().size() == 3);
}

TEST_CASE("under InferenceMode copies are normal tensors", "[recorder]") {
  AttentionRecorder recorder;
  at::Tensor want;
  {
    const c10::InferenceMode mode;
    const auto x = at::randn({2, 4, 3});
    const auto real = at::ones({2, 4}, at::kBool);
    want = attention(x, x, x, {}, {.mask = Mask::key_keep(real), .weights = Weights::Clean}).weights;
    linear_attention(x, x, x, {}, Mask::key_keep(real));
  }
  const auto& call = recorder.calls().at(0);
  for (const auto& copy : {call.q, call.k, call.key_keep, recorder.calls().at(1).q, recorder.calls().at(1).k})
    CHECK(compact(copy));
  CHECK_CLOSE(call.weights().squeeze(1), want);
  call.q.clone().requires_grad_(true).mul(call.k).sum().backward();  // copies can take part in training
}

TEST_CASE("under autocast what the backend read is recorded", "[recorder]") {
  const auto x = at::randn({2, 4, 8});
  AttentionRecorder recorder;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto output = attention(x, x, x);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  const auto& call = recorder.calls().at(0);
  CHECK(call.q.scalar_type() == at::kBFloat16);
  CHECK(bit_equal(call.q.squeeze(1), x.to(at::kBFloat16)));
  CHECK(call.weights().scalar_type() == at::kFloat);
  CHECK(difference(call.weights().squeeze(1).matmul(x), output, tolerance_of(at::kBFloat16)) == "");
}

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
