#include <array>
#include <memory>
#include <stdexcept>
#include <thread>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/function.h>

#include <attentive/core/options.h>
#include <attentive/functional/attention_recorder.h>
#include <attentive/functional/linear_attention.h>

#include "functional/recording.h"
#include "support/compare.h"
#include "support/errors.h"
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
