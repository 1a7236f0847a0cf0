#include <array>
#include <cmath>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/gated_delta_rule.h>

#include "support/autocast.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/gradcheck.h"
#include "support/saved_tensor_hooks.h"

using namespace attentive;
using attentive::test::doubles;

namespace {

// The tensors of a call, and its options.
struct Case {
  at::Tensor q, k, v, gate, beta, state;
  GatedDeltaRuleCall call = {};

  GatedDeltaRuleResult run() const { return gated_delta_rule(q, k, v, gate, beta, call, state); }
  std::vector<at::Tensor> tensors() const {
    std::vector<at::Tensor> some;
    for (const auto& x : {q, k, v, gate, beta, state}) {
      if (x.defined()) some.push_back(x);
    }
    return some;
  }
};

// The recurrence number by number, in double: the definition that every implementation has to equal.
GatedDeltaRuleResult recurrence(const Case& c) {
  const auto wide = [](const at::Tensor& x) { return x.detach().to(at::kCPU, at::kDouble).contiguous(); };
  const auto q = wide(c.q), k = wide(c.k), v = wide(c.v);
  const int64_t heads = v.size(1), T = q.size(2), Dk = q.size(3), Dv = v.size(3), group = heads / q.size(1);
  std::vector<int64_t> offsets{0, T};
  const bool packed = c.call.sequence_offsets.defined();
  if (packed) {
    const auto* first = c.call.sequence_offsets.const_data_ptr<int64_t>();
    offsets.assign(first, first + c.call.sequence_offsets.numel());
  }
  const int64_t sequences = packed ? static_cast<int64_t>(offsets.size()) - 1 : v.size(0);
  auto output = at::zeros(v.sizes(), at::kDouble);
  auto state = c.state.defined() ? wide(c.state).clone() : at::zeros({sequences, heads, Dk, Dv}, at::kDouble);
  const double scale = c.call.scale.value_or(1.0 / std::sqrt(static_cast<double>(Dk)));
  for (int64_t n = 0; n < sequences; ++n) {
    const int64_t b = packed ? 0 : n;
    const auto begin = packed ? offsets[static_cast<size_t>(n)] : 0,
               end = packed ? offsets[static_cast<size_t>(n) + 1] : T;
    for (int64_t h = 0; h < heads; ++h) {
      auto* const S = state[n][h].mutable_data_ptr<double>();
      for (int64_t t = begin; t < end; ++t) {
        const auto row = [&](const at::Tensor& x) {
          const auto* const from = x[b][h / group][t].const_data_ptr<double>();
          std::vector<double> result(from, from + Dk);
          double squares = 0.0;
          for (const double number : result) squares += number * number;
          if (c.call.normalize_eps) {
            for (double& number : result) number /= std::sqrt(squares + *c.call.normalize_eps);
          }
          return result;
        };
        const auto query = row(q), key = row(k);
        const double beta = c.beta.defined() ? c.beta[b][h][t].item<double>() : 1.0;
        for (int64_t d = 0; d < Dk; ++d) {
          double gate = 0.0;
          if (c.gate.defined())
            gate = (c.gate.dim() == 4 ? c.gate[b][h][t][d] : c.gate[b][h][t]).item<double>();
          for (int64_t e = 0; e < Dv; ++e) S[d * Dv + e] *= std::exp(gate);
        }
        for (int64_t e = 0; e < Dv; ++e) {
          double found = 0.0, sum = 0.0;
          for (int64_t d = 0; d < Dk; ++d) found += S[d * Dv + e] * key[static_cast<size_t>(d)];
          const double change = beta * (v[b][h][t][e].item<double>() - (c.call.delta ? found : 0.0));
          for (int64_t d = 0; d < Dk; ++d) {
            S[d * Dv + e] += key[static_cast<size_t>(d)] * change;
            sum += S[d * Dv + e] * query[static_cast<size_t>(d)];
          }
          output[b][h][t][e] = scale * sum;
        }
      }
    }
  }
  return {output, state};
}

enum class Gates { None, Head, Channel };

struct Shape {
  int64_t B = 1, Hk = 1, group = 1, T = 7, Dk = 5, Dv = 3;
};

Case drawn(const Shape& s, Gates gates, at::ScalarType type = at::kDouble, double key_norm = 1.0) {
  const auto options = at::device(at::kCPU).dtype(at::kDouble);
  const int64_t heads = s.Hk * s.group;
  const auto unit = [&](double norm) {
    const auto x = at::randn({s.B, s.Hk, s.T, s.Dk}, options);
    return x / x.square().sum(3, true).sqrt() * norm;
  };
  Case c{unit(std::sqrt(static_cast<double>(s.Dk))),  unit(key_norm),
         at::randn({s.B, heads, s.T, s.Dv}, options), {},
         at::rand({s.B, heads, s.T}, options),        at::randn({s.B, heads, s.Dk, s.Dv}, options)};
  if (gates == Gates::Head) c.gate = at::rand({s.B, heads, s.T}, options) * -0.2;
  if (gates == Gates::Channel) c.gate = at::rand({s.B, heads, s.T, s.Dk}, options) * -0.2;
  for (auto* x : {&c.q, &c.k, &c.v}) *x = x->to(type);
  const auto sums = type == at::kDouble ? at::kDouble : at::kFloat;
  for (auto* x : {&c.gate, &c.beta, &c.state}) {
    if (x->defined()) *x = x->to(sums);
  }
  return c;
}

}  // namespace

TEST_CASE("gated_delta_rule equals its recurrence", "[gated_delta_rule]") {
  for (const auto gates : {Gates::None, Gates::Head, Gates::Channel}) {
    for (const int64_t T : {0, 1, 2, 9, 65, 130}) {
      for (const bool delta : {true, false}) {
        INFO("gates " << static_cast<int>(gates) << " T " << T << " delta " << delta);
        auto c = drawn({.B = 2, .Hk = 2, .group = 2, .T = T}, gates);
        c.call.delta = delta;
        const auto want = recurrence(c);
        for (const auto device : test::devices()) {
          for (auto* x : {&c.q, &c.k, &c.v, &c.gate, &c.beta, &c.state}) {
            if (x->defined()) *x = x->to(device);
          }
          const auto got = c.run();
          CHECK_CLOSE(got.output.cpu(), want.output);
          CHECK_CLOSE(got.state.cpu(), want.state);
        }
      }
    }
  }
}

namespace {

// The gradients of a sum of both results with random weights, in the order of `tensors`.
std::vector<at::Tensor> gradients(Case c, at::ScalarType type, uint64_t seed) {
  for (auto* x : {&c.q, &c.k, &c.v, &c.gate, &c.beta, &c.state}) {
    if (x->defined()) *x = x->detach().to(type).requires_grad_(true);
  }
  const auto got = c.run();
  auto generator = at::detail::createCPUGenerator(seed);
  const auto weights = [&](const at::Tensor& x) {
    return at::randn(x.sizes(), generator, at::device(at::kCPU).dtype(at::kDouble));
  };
  const auto loss = (got.output * weights(got.output)).sum() + (got.state * weights(got.state)).sum();
  auto found = torch::autograd::grad({loss}, c.tensors(), {}, {}, false, /*allow_unused=*/c.q.numel() == 0);
  for (size_t n = 0; n < found.size(); ++n) {
    if (!found[n].defined()) found[n] = at::zeros_like(c.tensors()[n]);
  }
  return found;
}

double relative(const at::Tensor& got, const at::Tensor& want) {
  if (want.numel() == 0) return got.sizes() == want.sizes() ? 0.0 : 1.0;
  const double error = (got.to(at::kDouble) - want).abs().max().item<double>();
  return error == 0.0 ? 0.0 : error / std::max(want.abs().max().item<double>(), 1e-30);  // NaN stays NaN
}

}  // namespace

TEST_CASE("gated_delta_rule: float32 and its gradients equal float64", "[gated_delta_rule]") {
  const Shape shapes[] = {{.T = 0},
                          {.B = 2, .Hk = 2, .T = 1, .Dk = 16, .Dv = 24},
                          {.Hk = 1, .group = 4, .T = 2, .Dk = 5, .Dv = 7},
                          {.B = 2, .Hk = 2, .group = 2, .T = 63, .Dk = 24, .Dv = 40},
                          {.Hk = 2, .T = 64, .Dk = 32, .Dv = 16},
                          {.B = 2, .Hk = 1, .group = 2, .T = 65, .Dk = 17, .Dv = 33},
                          {.Hk = 1, .group = 2, .T = 200, .Dk = 128, .Dv = 64}};
  for (const auto& shape : shapes) {
    for (const auto gates : {Gates::None, Gates::Head, Gates::Channel}) {
      for (int n = 0; n < 4; ++n) {
        INFO("T " << shape.T << " Dk " << shape.Dk << " gates " << static_cast<int>(gates) << " case " << n);
        auto c = drawn(shape, gates, at::kFloat);
        c.call.delta = n != 1;
        if (n == 2) c.call.normalize_eps = 1e-6;
        if (n == 3) c.state = c.beta = at::Tensor();
        const auto got = c.run(), want = recurrence(c);
        CHECK(relative(got.output, want.output) <= 2e-6);
        CHECK(relative(got.state, want.state) <= 2e-6);
        const auto found = gradients(c, at::kFloat, 1), wanted = gradients(c, at::kDouble, 1);
        for (size_t i = 0; i < wanted.size(); ++i) {
          INFO("gradient " << i);
          CHECK(relative(found[i], wanted[i]) <= 1e-5);
        }
      }
    }
  }
}

TEST_CASE("gated_delta_rule: gradients of the definition equal differences", "[gated_delta_rule]") {
  for (const auto gates : {Gates::None, Gates::Head, Gates::Channel}) {
    for (const int64_t T : {3, 10}) {  // by tokens, and by a chunk
      INFO("gates " << static_cast<int>(gates) << " T " << T);
      auto c = drawn({.Hk = 2, .group = 2, .T = T, .Dk = 3, .Dv = 2}, gates);
      c.call = {.scale = 0.7, .normalize_eps = 1e-3, .delta = T == 10};
      CHECK(test::gradcheck(
                [&](const std::vector<at::Tensor>& x) {
                  auto with = c;
                  size_t n = 0;
                  for (auto* some : {&with.q, &with.k, &with.v, &with.gate, &with.beta, &with.state}) {
                    if (some->defined()) *some = x[n++];
                  }
                  const auto got = with.run();
                  return got.output.sin().sum() + got.state.cos().sum();
                },
                c.tensors()) == "");
    }
  }
}

TEST_CASE("gated_delta_rule: gates that forget", "[gated_delta_rule]") {
  for (const bool by_channel : {false, true}) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      for (const int64_t T : {5, 150}) {
        for (int n = 0; n < 4; ++n) {
          INFO("by channel " << by_channel << " " << type << " T " << T << " gates " << n);
          auto c = drawn({.Hk = 1, .group = 2, .T = T, .Dk = 24, .Dv = 16},
                         by_channel ? Gates::Channel : Gates::Head, type);
          if (n == 0) c.gate.fill_(-100.0);
          if (n == 1) c.gate.fill_(-INFINITY);
          if (n >= 2) {  // most gates are near 0, the others large
            const auto kind = at::rand(c.gate.sizes());
            c.gate = c.gate.masked_fill(kind.lt(0.3), 0.0).masked_fill(kind.gt(0.8), n == 2 ? -100.0 : -7.0);
            if (n == 2) c.gate = c.gate.masked_fill(kind.gt(0.95), -INFINITY);
          }
          const auto got = c.run(), want = recurrence(c);
          CHECK(relative(got.output, want.output) <= (type == at::kFloat ? 2e-6 : 1e-13));
          CHECK(relative(got.state, want.state) <= (type == at::kFloat ? 2e-6 : 1e-13));
          const auto found = gradients(c, type, 2), wanted = gradients(c, at::kDouble, 2);
          for (size_t i = 0; i < wanted.size(); ++i) {
            INFO("gradient " << i);
            CHECK(wanted[i].isfinite().all().item<bool>());
            CHECK(found[i].isfinite().all().item<bool>());
            CHECK((found[i].to(at::kDouble) - wanted[i]).abs().max().item<double>() <=
                  1e-5 * std::max(wanted[i].abs().max().item<double>(), 1e-3));
          }
        }
      }
    }
  }
}

TEST_CASE("gated_delta_rule: long keys equal the recurrence", "[gated_delta_rule]") {
  for (const auto gates : {Gates::Head, Gates::Channel}) {
    auto c = drawn({.Hk = 2, .T = 40, .Dk = 16, .Dv = 8}, gates, at::kFloat, /*key_norm=*/3.0);
    c.beta = c.beta * 2.0;
    const auto got = c.run(), want = recurrence(c);
    // The state grows by orders of magnitude, and errors with it: each token is compared with its own largest
    // number, which may be much smaller than the state's.
    const auto size = want.output.abs().amax(3, true);
    CHECK(((got.output - want.output).abs() / size).max().item<double>() <= 2e-3);
    CHECK(relative(got.state, want.state) <= 1e-4);
  }
}

TEST_CASE("gated_delta_rule: a thousand tokens of 128 channels", "[gated_delta_rule]") {
  auto c = drawn({.Hk = 1, .T = 1000, .Dk = 128, .Dv = 128}, Gates::Head, at::kFloat);
  c.call.normalize_eps = 1e-6;
  c.state = at::Tensor();
  const auto got = c.run(), want = recurrence(c);
  CHECK(relative(got.output, want.output) <= 2e-6);
  CHECK(relative(got.state, want.state) <= 2e-6);
  const auto found = gradients(c, at::kFloat, 3), wanted = gradients(c, at::kDouble, 3);
  for (size_t i = 0; i < wanted.size(); ++i) CHECK(relative(found[i], wanted[i]) <= 1e-5);
}

TEST_CASE("gated_delta_rule: packed sequences are calls of their own", "[gated_delta_rule]") {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const auto gates : {Gates::Head, Gates::Channel}) {
      auto c = drawn({.Hk = 2, .group = 2, .T = 121, .Dk = 16, .Dv = 12}, gates, type);
      const std::vector<int64_t> offsets{0, 0, 1, 34, 34, 104, 121, 121};
      const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
      c.call.sequence_offsets = at::tensor(offsets);
      c.state = at::randn({sequences, 4, 16, 12}, c.state.options());
      const auto got = c.run(), want = recurrence(c);
      CHECK_CLOSE(got.output, want.output.to(type));
      CHECK_CLOSE(got.state, want.state.to(type));
      CHECK(got.state[0].equal(c.state[0]));
      const auto found = gradients(c, type, 4), wanted = gradients(c, at::kDouble, 4);
      for (size_t i = 0; i < wanted.size(); ++i) CHECK(relative(found[i], wanted[i]) <= 1e-5);
      const auto one = c.state.slice(0, 4, 5);
      const auto cut = [&](const at::Tensor& x) { return x.slice(2, 34, 104); };
      const auto alone = gated_delta_rule(cut(c.q), cut(c.k), cut(c.v), cut(c.gate), cut(c.beta), {}, one);
      CHECK(cut(got.output).equal(alone.output));
      CHECK(got.state.slice(0, 4, 5).equal(alone.state));
    }
  }
  auto none = drawn({.T = 0}, Gates::Head, at::kFloat);
  none.call.sequence_offsets = at::zeros({1}, at::kLong);
  none.state = at::Tensor();
  CHECK(none.run().state.sizes() == at::IntArrayRef({0, 1, 5, 3}));
}

TEST_CASE("gated_delta_rule: half types are float32, rounded once", "[gated_delta_rule]") {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t T : {1, 100}) {
      for (const auto gates : {Gates::Head, Gates::Channel}) {
        const auto c = drawn({.B = 2, .Hk = 2, .group = 2, .T = T, .Dk = 24, .Dv = 40}, gates, type);
        auto wide = c;
        for (auto* x : {&wide.q, &wide.k, &wide.v}) *x = x->to(at::kFloat);
        const auto results = [&](const Case& given) {
          auto leaves = given;
          for (auto* x : {&leaves.q, &leaves.k, &leaves.v, &leaves.gate, &leaves.beta, &leaves.state})
            *x = x->detach().requires_grad_(true);
          const auto got = leaves.run();
          auto found = torch::autograd::grad({got.output.to(at::kFloat).sum() * 0.5, got.state.sum()},
                                             leaves.tensors());
          found.push_back(got.output.detach());
          found.push_back(got.state.detach());
          return found;
        };
        const auto got = results(c), want = results(wide);
        for (size_t i = 0; i < want.size(); ++i) {
          INFO(type << " T " << T << " result " << i);
          CHECK(got[i].equal(want[i].to(got[i].scalar_type())));
        }
        CHECK(got[0].scalar_type() == type);
        CHECK(got[6].scalar_type() == type);
        CHECK(got[7].scalar_type() == at::kFloat);
      }
    }
  }
}

TEST_CASE("gated_delta_rule: equal bits for any strides and number of threads", "[gated_delta_rule]") {
  const auto threads = at::get_num_threads();
  for (const int64_t T : {1, 90}) {
    for (const auto gates : {Gates::Head, Gates::Channel}) {
      auto c = drawn({.Hk = 2, .group = 3, .T = T, .Dk = 40, .Dv = 136}, gates, at::kFloat);
      const auto results = [](const Case& given) {
        auto found = gradients(given, at::kFloat, 5);
        const auto got = given.run();
        found.push_back(got.output);
        found.push_back(got.state);
        return found;
      };
      const auto want = results(c);
      const auto check = [&](const Case& given) {
        const auto got = results(given);
        for (size_t i = 0; i < want.size(); ++i) {
          INFO("T " << T << " result " << i);
          CHECK(got[i].equal(want[i]));
        }
      };
      for (const int n : {1, 2, 3, 4}) {
        at::set_num_threads(n);
        check(c);
      }
      at::set_num_threads(threads);
      const auto restrided = [&](auto change) {
        auto moved = c;
        for (auto* x : {&moved.q, &moved.k, &moved.v, &moved.gate, &moved.beta, &moved.state})
          *x = change(*x);
        check(moved);
      };
      restrided([](const at::Tensor& x) { return x.transpose(1, 2).contiguous().transpose(1, 2); });
      restrided([](const at::Tensor& x) { return x.transpose(-1, -2).contiguous().transpose(-1, -2); });
      restrided([](const at::Tensor& x) { return at::stack({x, x * 2.0}, -1).select(-1, 0); });
    }
  }
}

TEST_CASE("gated_delta_rule_ replaces the state", "[gated_delta_rule]") {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int64_t T : {0, 1, 3, 70}) {
      const auto c = drawn({.B = 2, .Hk = 3, .group = 2, .T = T, .Dk = 16, .Dv = 100}, Gates::Head, type);
      const auto want = c.run();
      auto state = c.state.clone();
      const auto version = state._version();
      const auto output = gated_delta_rule_(state, c.q, c.k, c.v, c.gate, c.beta);
      CHECK(output.equal(want.output));
      CHECK(state.equal(want.state));
      CHECK(state._version() > version);
    }
  }
  const auto c = drawn({}, Gates::Head, at::kFloat);
  auto state = c.state.clone();
  CHECK(test::value_error([&] { gated_delta_rule_(state, c.q, c.k, c.v.slice(2, 1), c.gate, c.beta); }) ==
        "gated_delta_rule_: expected v of shape (1, Hv, 7, Dv), got (1, 1, 6, 3)");
  CHECK(state.equal(c.state));
  auto turned = c.state.transpose(2, 3).contiguous().transpose(2, 3);
  CHECK(test::value_error([&] { gated_delta_rule_(turned, c.q, c.k, c.v); }) ==
        "gated_delta_rule_: expected state to be contiguous, got strides [15, 15, 1, 5]");
  at::Tensor none;
  CHECK(test::value_error([&] { gated_delta_rule_(none, c.q, c.k, c.v); }) ==
        "gated_delta_rule_: expected state to be a tensor, got an undefined one");
}

TEST_CASE("gated_delta_rule: saved tensors may come back as copies, and gradients have gradients",
          "[gated_delta_rule]") {
  for (const auto gates : {Gates::Head, Gates::Channel}) {
    const auto c = drawn({.Hk = 1, .group = 2, .T = 20, .Dk = 6, .Dv = 5}, gates, at::kFloat);
    const auto derivatives = [&](at::ScalarType type) {
      auto leaves = c;
      leaves.call.normalize_eps = 1e-6;
      for (auto* x : {&leaves.q, &leaves.k, &leaves.v, &leaves.gate, &leaves.beta, &leaves.state})
        *x = x->to(type).requires_grad_(true);
      return test::derivatives_of(
          [&] {
            const auto got = leaves.run();
            return got.output.square().sum() + got.state.sin().sum();
          },
          leaves.tensors());
    };
    const auto want = derivatives(at::kFloat);
    CHECK(test::distance(want, derivatives(at::kDouble)) <= 2e-5);
    for (const auto& hook : test::kSavedTensorHooks) {
      INFO(hook.name);
      const test::SavedTensorHooksGuard guard(hook);
      CHECK(test::distance(derivatives(at::kFloat), want) <= 1e-6);
    }
  }
}

TEST_CASE("gated_delta_rule: some gradients, one result, one tensor as several", "[gated_delta_rule]") {
  const auto c = drawn({.T = 20}, Gates::Head, at::kFloat);
  const auto leaf = c.k.clone().requires_grad_(true);
  for (const bool graph : {false, true}) {
    const auto of = [&](const at::Tensor& q, const at::Tensor& k, bool output) {
      const auto got = gated_delta_rule(q, k, c.v, c.gate, c.beta, {}, c.state);
      return torch::autograd::grad({(output ? got.output : got.state).square().sum()}, {leaf}, {}, graph,
                                   graph)[0];
    };
    const auto both = of(leaf, leaf, true);
    CHECK_CLOSE(both, of(leaf, c.k, true) + of(c.k, leaf, true));
    CHECK(of(c.q, leaf, false).abs().max().item<double>() > 0.1);
    CHECK(of(leaf, c.k, false).abs().max().item<double>() == 0.0);
  }
}

TEST_CASE("gated_delta_rule under autocast", "[gated_delta_rule]") {
  const auto c = drawn({.T = 20}, Gates::Head, at::kFloat);
  auto half = c;
  for (auto* x : {&half.q, &half.k, &half.v}) *x = x->to(at::kBFloat16);
  {
    const test::CpuAutocast autocast(at::kBFloat16);
    CHECK(c.run().output.equal(half.run().output));
    CHECK(c.run().output.scalar_type() == at::kBFloat16);
  }
}

TEST_CASE("gated_delta_rule: NaN in a token does not reach earlier ones", "[gated_delta_rule]") {
  for (const auto gates : {Gates::Head, Gates::Channel}) {
    const auto good = drawn({.Hk = 1, .T = 50, .Dk = 24, .Dv = 40}, gates, at::kFloat);
    const auto want = good.run().output;
    for (const int member : {0, 1, 2, 3, 4}) {
      auto c = good;
      auto& x = *std::array{&c.q, &c.k, &c.v, &c.gate, &c.beta}[static_cast<size_t>(member)];
      x = x.clone();
      x.select(2, 20).fill_(member == 2 ? INFINITY : NAN);
      const auto got = c.run().output;
      INFO("gates " << static_cast<int>(gates) << " tensor " << member);
      CHECK_CLOSE(got.slice(2, 0, 20), want.slice(2, 0, 20));
      CHECK(!got.select(2, 20).isfinite().any().item<bool>());
    }
  }
}

TEST_CASE("gated_delta_rule refuses what does not match", "[gated_delta_rule]") {
  const auto good = drawn({.B = 2, .Hk = 2, .group = 2}, Gates::Head, at::kFloat);
  const auto error = [&](auto change) {
    auto c = good;
    change(c);
    const auto value = test::value_error([&] { c.run(); });
    return value.substr(0, 15) == "another error: " ? test::type_error([&] { c.run(); }) : value;
  };
  CHECK(error([](Case& c) { c.q = at::Tensor(); }) ==
        "gated_delta_rule: expected q to be a tensor, got an undefined one");
  CHECK(error([](Case& c) { c.q = c.q[0]; }) ==
        "gated_delta_rule: expected q of shape (B, Hk, T, Dk), got (2, 7, 5)");
  CHECK(error([](Case& c) { c.k = c.k.slice(3, 1); }) ==
        "gated_delta_rule: expected k like q of shape (2, 2, 7, 5), got (2, 2, 7, 4)");
  CHECK(error([](Case& c) { c.v = c.v.slice(1, 1); }) ==
        "gated_delta_rule: expected a multiple of the 2 heads of q as heads of v, got 3");
  CHECK(error([](Case& c) { c.k = c.k.to(at::kDouble); }) ==
        "gated_delta_rule: expected k of dtype Float like v, got Double");
  CHECK(
      error([](Case& c) { c.v = c.v.to(at::kInt); }) ==
      "gated_delta_rule: expected v of dtype Double, Float, BFloat16 or Half, got Int tensor of shape (2, 4, "
      "7, 3)");
  CHECK(error([](Case& c) { c.gate = c.gate.slice(2, 1); }) ==
        "gated_delta_rule: expected gate of shape (2, 4, 7), or with 5 channels, got (2, 4, 6)");
  CHECK(error([](Case& c) { c.gate = c.gate.to(at::kHalf); }) ==
        "gated_delta_rule: expected gate of dtype Float or that of v, got Half");
  CHECK(error([](Case& c) { c.beta = c.beta.unsqueeze(3); }) ==
        "gated_delta_rule: expected beta as a number per token of shape (2, 4, 7), got (2, 4, 7, 1)");
  CHECK(error([](Case& c) { c.state = c.state.slice(0, 1); }) ==
        "gated_delta_rule: expected state as a matrix per head of shape (2, 4, 5, 3), got (1, 4, 5, 3)");
  CHECK(error([](Case& c) { c.state = c.state.to(at::kBFloat16); }) ==
        "gated_delta_rule: expected state of dtype Float, got BFloat16");
  CHECK(error([](Case& c) { c.call.scale = INFINITY; }) ==
        "gated_delta_rule: expected scale to be finite, got inf");
  CHECK(error([](Case& c) { c.call.normalize_eps = -1.0; }) ==
        "gated_delta_rule: expected normalize_eps to be finite and not negative, got -1");
  CHECK(error([](Case& c) { c.v = c.v.to(at::kMeta); }) ==
        "gated_delta_rule: expected q on meta like v, got it on cpu");
  const auto packed = [&](const at::Tensor& offsets) {
    return error([&](Case& c) {
      for (auto* x : {&c.q, &c.k, &c.v, &c.gate, &c.beta, &c.state}) *x = x->slice(0, 1);
      c.call.sequence_offsets = offsets;
    });
  };
  CHECK(packed(at::tensor({0, 7}, at::kInt)) ==
        "gated_delta_rule: expected sequence_offsets of dtype Long, got Int tensor of shape (2,)");
  CHECK(packed(at::tensor({1, 7}, at::kLong)) ==
        "gated_delta_rule: expected sequence_offsets to start at 0, got 1");
  CHECK(packed(at::tensor({0, 5, 3, 7}, at::kLong)) ==
        "gated_delta_rule: expected sequence_offsets never to decrease, got 5 before 3");
  CHECK(packed(at::tensor({0, 6}, at::kLong)) ==
        "gated_delta_rule: expected sequence_offsets to end at 7 (the packed tokens), got 6");
  CHECK(packed(at::zeros({1, 1}, at::kLong)) ==
        "gated_delta_rule: expected sequence_offsets of shape (N + 1,), got (1, 1)");
  CHECK(error([](Case& c) {
          c.call.sequence_offsets = at::tensor({0, 7}, at::kLong);
        }) ==
        "gated_delta_rule: expected one row of packed sequences with sequence_offsets, got a batch of 2");
}
