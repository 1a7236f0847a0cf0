#include <cmath>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/gated_delta_rule.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/gradcheck.h"

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
  const auto wide = [](const at::Tensor& x) { return x.detach().to(at::kDouble).contiguous(); };
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
        const auto got = c.run();
        CHECK_CLOSE(got.output, want.output);
        CHECK_CLOSE(got.state, want.state);
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
