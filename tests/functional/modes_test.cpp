// Tensors have no version under InferenceMode. Every backend must give, in every dtype, the bits that it
// gives without a graph, for tensors made inside and outside of the mode.

#include <functional>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_make_dual.h>
#include <ATen/ops/_unpack_dual.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/csrc/autograd/forward_grad.h>

#include <attentive/core/options.h>
#include <attentive/functional/attention_recorder.h>
#include <attentive/functional/explain.h>
#include <attentive/functional/gated_delta_rule.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/modules/transformer_blocks.h>
#include <attentive/score/score_mod.h>

#include "functional/elementwise.h"
#include "support/cells.h"
#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using namespace attentive::test;

namespace {

struct Made {
  at::Tensor q, k, v;
  AttentionExtras extras;
};

constexpr std::array kKinds = {"plain", "grouped heads", "keep mask", "lengths",
                               "bias",  "logsumexp",     "weights",   "sinks"};

Made make(const Cell& cell, const std::string& kind, bool gradients) {
  at::manual_seed(3);
  const auto draw = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).to(cell.device, cell.type);
  };
  const int64_t heads = kind == "grouped heads" ? 2 : 4;
  Made made{draw({2, 4, 6, 8}), draw({2, heads, 9, 8}), draw({2, heads, 9, 8}), {}};
  auto& extras = made.extras;
  if (kind == "keep mask") extras.mask = at::rand({6, 9}).gt(0.4).to(cell.device);
  if (kind == "lengths") extras.mask = Mask::key_lengths(at::tensor({9, 4}, at::kLong));
  if (kind == "bias") extras.mask = Mask::bias(draw({6, 9}));
  if (kind == "logsumexp") extras.logsumexp = true;
  if (kind == "weights") extras.weights = Weights::Clean;
  if (kind == "sinks") extras.sinks = draw({4});
  if (gradients) {
    for (auto* x : {&made.q, &made.k, &made.v}) x->requires_grad_(true);
  }
  return made;
}

}  // namespace

TEST_CASE("attention under InferenceMode gives the bits of attention without a graph", "[inference_mode]") {
  const auto cell = GENERATE(from_range(cells()));
  for (const std::string kind : kKinds) {
    INFO(cell << ", " << kind);
    const auto outside = make(cell, kind, false), leaves = make(cell, kind, true);
    if (!cell.refusal(outside.q, outside.k, outside.v, {}, outside.extras).empty()) continue;
    const AttentionOptions options{.backend = cell.backend};
    const auto run = [&](const Made& made) {
      return attention(made.q, made.k, made.v, options, made.extras);
    };
    const auto want = run(outside);
    const c10::InferenceMode inference;
    for (const auto& made : {outside, leaves, make(cell, kind, false)}) {
      const auto got = run(made);
      CHECK(bit_equal(got.output, want.output));
      if (want.weights.defined()) CHECK(bit_equal(got.weights, want.weights));
      if (want.logsumexp.defined()) CHECK(bit_equal(got.logsumexp, want.logsumexp));
    }
  }
}

TEST_CASE("packed and linear attention under InferenceMode give the bits of a call without a graph",
          "[inference_mode]") {
  const auto cell = GENERATE(from_range(cells()));
  INFO(cell);
  const auto outside = make(cell, "plain", false);
  const auto ends = at::tensor({0, 5, 11}, at::kLong);
  const auto packed = [&](const Made& made) {
    const auto x = made.q.transpose(0, 1).flatten(1, 2).transpose(0, 1).slice(0, 0, 11);
    return attention_varlen(x, x, x, ends, ends, {.causal = Causal::BottomRight, .backend = cell.backend})
        .output;
  };
  const auto linear = [&](const Made& made) {
    LinearAttentionCall causal;
    causal.causal = Causal::BottomRight;
    return linear_attention(made.q, made.k, made.v, causal);
  };
  const bool taken = cell.refusal(outside.q, outside.q, outside.q).empty();
  at::Tensor want;
  if (taken) want = packed(outside);
  const auto want_linear = linear(outside);
  const c10::InferenceMode inference;
  for (const auto& made : {outside, make(cell, "plain", true), make(cell, "plain", false)}) {
    if (taken) CHECK(bit_equal(packed(made), want));
    CHECK(bit_equal(linear(made), want_linear));
  }
}

// Forward-mode differentiation: a backend propagates the tangents of all tensors of a call or refuses the
// call.

using Catch::Matchers::ContainsSubstring;

namespace {

using Function = std::function<at::Tensor(const at::Tensor&)>;

// Enters a level of forward-mode differentiation for its lifetime.
class Level {
 public:
  Level() : id_(torch::autograd::ForwardADLevel::get_next_idx()) {}
  ~Level() { torch::autograd::ForwardADLevel::release_idx(id_); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

  at::Tensor dual(const at::Tensor& x, const at::Tensor& tangent) const {
    return at::_make_dual(x, tangent, static_cast<int64_t>(id_));
  }
  at::Tensor tangent(const at::Tensor& y) const {
    return std::get<1>(at::_unpack_dual(y, static_cast<int64_t>(id_)));
  }

 private:
  uint64_t id_;
};

// Compares the tangent of f at x along a random direction with central differences of f in float64.
void check_tangent(const Function& f, const at::Tensor& x, const Function& exact) {
  at::manual_seed(12);
  const auto direction = at::randn(x.sizes(), x.options());
  const Level level;
  const auto got = level.tangent(f(level.dual(x, direction)));
  REQUIRE(got.defined());
  const double h = 1e-6;
  const auto wide = x.to(at::kDouble), step = direction.to(at::kDouble) * h;
  const auto want = (exact(wide + step) - exact(wide - step)) / (2 * h);
  CHECK_WITHIN(got, want, {1e-4, 1e-6});
}

struct TangentCall {
  at::Tensor q, k, v, bias, slopes, sinks;

  explicit TangentCall(at::ScalarType type) {
    at::manual_seed(2);
    q = at::randn({2, 4, 6, 8}, at::kDouble).to(type);
    k = at::randn({2, 2, 6, 8}, at::kDouble).to(type);
    v = at::randn({2, 2, 6, 8}, at::kDouble).to(type);
  }
  void decorate() {
    bias = at::randn({6, 6}, at::kDouble).to(q.scalar_type());
    slopes = at::rand({4}, at::kDouble).to(q.scalar_type());
    sinks = at::randn({4}, at::kDouble).to(q.scalar_type());
  }
  std::vector<at::Tensor TangentCall::*> members() const {
    std::vector<at::Tensor TangentCall::*> result = {&TangentCall::q, &TangentCall::k, &TangentCall::v};
    if (bias.defined())
      result.insert(result.end(), {&TangentCall::bias, &TangentCall::slopes, &TangentCall::sinks});
    return result;
  }
  at::Tensor run(const AttentionOptions& options) const {
    AttentionExtras extras;
    if (bias.defined()) extras.mask = Mask::bias(bias);
    extras.alibi_slopes = slopes;
    extras.sinks = sinks;
    return attention(q, k, v, options, extras).output;
  }
  // Returns the call with one of its tensors replaced by x, and all tensors in the dtype of x.
  TangentCall with(at::Tensor TangentCall::*member, const at::Tensor& x) const {
    TangentCall result = *this;
    for (auto other : members()) result.*other = (result.*other).to(x.scalar_type());
    result.*member = x;
    return result;
  }
};

}  // namespace

TEST_CASE("tangents of every tensor come through attention", "[forward_mode]") {
  const auto type = GENERATE(at::kFloat, at::kDouble);
  const bool decorated = GENERATE(false, true);
  const bool gradients = GENERATE(false, true);
  const AttentionOptions options{.causal = Causal::BottomRight};
  TangentCall call(type);
  if (decorated) call.decorate();
  const auto members = call.members();
  for (size_t n = 0; n < members.size(); ++n) {
    INFO("tensor " << n << ", dtype " << c10::toString(type) << ", gradients " << gradients);
    const auto f = [&](const at::Tensor& x) { return call.with(members[n], x).run(options); };
    check_tangent(f, (call.*members[n]).detach().requires_grad_(gradients), [&](const at::Tensor& x) {
      const at::NoGradGuard no_grad;
      return f(x);
    });
  }
}

TEST_CASE("tangents of every tensor come through gated_delta_rule", "[forward_mode][gated_delta_rule]") {
  at::manual_seed(4);
  const auto gate = at::rand({1, 2, 20}, at::kDouble) * -0.2, beta = at::rand({1, 2, 20}, at::kDouble);
  const std::vector<at::Tensor> x{
      doubles({1, 1, 20, 4}), doubles({1, 1, 20, 4}) * 0.3, doubles({1, 2, 20, 3}), gate, beta,
      doubles({1, 2, 4, 3})};
  for (size_t n = 0; n < x.size(); ++n) {
    INFO("tensor " << n);
    const auto f = [&](const at::Tensor& changed) {
      std::vector<at::Tensor> all;
      for (const auto& one : x) all.push_back(one.to(changed.scalar_type()));
      all[n] = changed;
      return gated_delta_rule(all[0], all[1], all[2], all[3], all[4], {}, all[5]).output;
    };
    check_tangent(f, x[n].to(at::kFloat), f);
  }
}

TEST_CASE("tangents come through a score, those of a captured tensor too", "[forward_mode][score]") {
  const auto type = GENERATE(at::kFloat, at::kDouble);
  const TangentCall call(type);
  at::manual_seed(3);
  const auto numbers = at::randn({4, 6}, at::kDouble).to(type);
  const auto run = [](const TangentCall& one, const at::Tensor& given) {
    const auto table = captured(given);
    AttentionExtras extras;
    extras.score =
        score_mod([=](auto s, auto pair) { return s * sigmoid(s) + sin(table(pair.head, pair.key)); });
    extras.block_mask = mask_mod([=](auto pair) { return table(pair.head, pair.key) > -1.0f; });
    return attention(one.q, one.k, one.v, {}, extras).output;
  };
  const auto of_table = [&](const at::Tensor& x) {
    return run(call.with(&TangentCall::q, call.q.to(x.scalar_type())), x);
  };
  check_tangent(of_table, numbers, of_table);
  for (const auto member : call.members()) {
    const auto f = [&](const at::Tensor& x) {
      return run(call.with(member, x), numbers.to(x.scalar_type()));
    };
    check_tangent(f, call.*member, f);
  }
}

TEST_CASE("a kernel refuses a call with tangents by name", "[forward_mode][errors]") {
  const auto backend = GENERATE(Backend::Native, Backend::Torch);
  const TangentCall call(at::kFloat);
  const Level level;
  const auto q = level.dual(call.q, at::randn(call.q.sizes()));
  CHECK(error_of<c10::ValueError>([&] { attention(q, call.k, call.v, {.backend = backend}); }) ==
        std::string("attention: backend ") + std::string(to_string(backend)) +
            " cannot express this call: it does not support forward-mode differentiation");
  CHECK(explain(q, call.k, call.v).chosen == Backend::Reference);
}

TEST_CASE("tangents come through linear_attention", "[forward_mode]") {
  const auto causal = GENERATE(Causal::None, Causal::BottomRight);
  const TangentCall call(at::kDouble);
  LinearAttentionCall options;
  options.causal = causal;
  options.chunk_size = 4;
  for (const auto member : call.members()) {
    const auto f = [&](const at::Tensor& x) {
      const auto one = call.with(member, x);
      return linear_attention(one.q, one.k, one.v, options);
    };
    check_tangent(f, call.*member, f);
  }
}

TEST_CASE("tangents come through GELU and the dropout of features", "[forward_mode]") {
  const auto x = at::randn({5, 128});
  check_tangent(gelu_tanh, x, gelu_tanh);
  const auto seeded = [](const Function& f) {
    return [f](const at::Tensor& t) {
      at::manual_seed(3);
      return f(t);
    };
  };
  const auto dropped = seeded([](const at::Tensor& t) { return drop_features(t, 0.4, true); });
  const auto added =
      seeded([&](const at::Tensor& t) { return add_dropped(x.to(t.scalar_type()), t, 0.4, true); });
  const auto residual =
      seeded([&](const at::Tensor& t) { return add_dropped(t, x.to(t.scalar_type()), 0.4, true); });
  check_tangent(dropped, x, dropped);
  check_tangent(added, x, added);
  check_tangent(residual, x, residual);
}

TEST_CASE("tangents come through modules, packed projections among them", "[forward_mode]") {
  const bool gradients = GENERATE(false, true);
  const at::AutoGradMode mode(gradients);
  MultiHeadAttention attention(16, 16, 0, 0.0, 2);
  FeedForward feed_forward(16);
  const auto exact = [](const auto& module) {
    auto copy = std::dynamic_pointer_cast<typename std::decay_t<decltype(*module)>>(module->clone());
    copy->to(at::kDouble);
    return copy;
  };
  const auto x = at::randn({2, 7, 16});
  const auto wide_attention = exact(attention);
  check_tangent([&](const at::Tensor& t) { return attention->forward(t); }, x,
                [&](const at::Tensor& t) { return wide_attention->forward(t); });
  const auto wide_feed_forward = exact(feed_forward);
  check_tangent([&](const at::Tensor& t) { return feed_forward->forward(t); }, x,
                [&](const at::Tensor& t) { return wide_feed_forward->forward(t); });
}

TEST_CASE("forward mode: a recorder's copies carry no tangent, and results keep theirs", "[forward_mode]") {
  const auto x = at::randn({2, 5, 4}, at::kDouble), direction = at::randn({2, 5, 4}, at::kDouble);
  const Level level;
  const auto dual = level.dual(x, direction);
  const auto want = level.tangent(attention(dual, dual, dual));
  AttentionRecorder recorder;
  CHECK(bit_equal(level.tangent(attention(dual, dual, dual)), want));
  CHECK_FALSE(level.tangent(recorder.calls().at(0).q).defined());
  CHECK_FALSE(level.tangent(recorder.calls().at(0).weights()).defined());
}
