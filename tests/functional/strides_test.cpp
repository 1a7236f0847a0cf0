// Strides affect only the memory layout: a call gives the results of contiguous tensors, on every backend, in
// every dtype, forward and backward, even if rows, heads or items share memory.

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/conj.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/models/generate.h>

#include "functional/elementwise.h"
#include "functional/linear.h"
#include "support/cells.h"
#include "support/compare.h"
#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;

namespace {

struct Layout {
  std::string name;
  // Makes a tensor (B, H, T, D) of random numbers.
  std::function<at::Tensor(int64_t B, int64_t H, int64_t T, int64_t D, at::ScalarType type)> make;
};

at::Tensor numbers(at::IntArrayRef sizes, at::ScalarType type) {
  return at::randn(sizes, at::kDouble).to(type);
}

at::Tensor strided(int64_t B, int64_t H, int64_t T, int64_t D, std::array<int64_t, 4> by,
                   at::ScalarType type) {
  const int64_t last = (B - 1) * by[0] + (H - 1) * by[1] + (T - 1) * by[2] + (D - 1) * by[3];
  return numbers({last + 4}, type).as_strided({B, H, T, D}, by, /*storage_offset=*/3);
}

// A tensor with a pending sign change: the imaginary part of a conjugate. There is no complex type for
// bfloat16.
at::Tensor pending_sign(int64_t B, int64_t H, int64_t T, int64_t D, at::ScalarType type) {
  if (type == at::kBFloat16) return numbers({B, H, T, D}, type);
  return at::imag(at::conj(at::view_as_complex(numbers({B, H, T, D, 2}, type))));
}

// Defines a layout by an expression of B, H, T, D and the dtype.
#define LAYOUT(expression) \
  [](int64_t B, int64_t H, int64_t T, int64_t D, at::ScalarType type) -> at::Tensor { return expression; }
const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"heads inside tokens", LAYOUT(numbers({B, T, H, D}, type).transpose(1, 2))},
      {"features outside tokens", LAYOUT(numbers({B, H, D, T}, type).transpose(2, 3))},
      {"every other row", LAYOUT(numbers({B, H, 2 * T, D}, type).slice(2, 1, 2 * T, 2))},
      {"every third feature", LAYOUT(numbers({B, H, T, 3 * D}, type).slice(3, 1, 3 * D, 3))},
      {"an offset",
       LAYOUT(numbers({B + 1, H, T + 5, D + 3}, type).slice(0, 1).slice(2, 3, T + 3).slice(3, 1, D + 1))},
      {"a pending sign", LAYOUT(pending_sign(B, H, T, D, type))},
      {"one item for all", LAYOUT(numbers({1, H, T, D}, type).expand({B, H, T, D}))},
      {"one head for all", LAYOUT(numbers({B, 1, T, D}, type).expand({B, H, T, D}))},
      {"one row for all", LAYOUT(numbers({B, H, 1, D}, type).expand({B, H, T, D}))},
      {"one feature for all", LAYOUT(numbers({B, H, T, 1}, type).expand({B, H, T, D}))},
      {"one number for all", LAYOUT(numbers({1, 1, 1, 1}, type).expand({B, H, T, D}))},
      {"windows that slide by one", LAYOUT(strided(B, H, T, D, {H * (T + D), T + D, 1, 1}, type))},
      {"windows that slide by two", LAYOUT(strided(B, H, T, D, {H * (2 * T + D), 2 * T + D, 2, 1}, type))},
      {"rows that share features, turned", LAYOUT(strided(B, H, T, D, {H * (T + D), T + D, 1, 2}, type))},
      {"heads that overlap", LAYOUT(strided(B, H, T, D, {T * D + H, 1, D, 1}, type))},
      {"items that overlap", LAYOUT(strided(B, H, T, D, {1, T * D, D, 1}, type))},
      {"items outside all, one apart", LAYOUT(strided(B, H, T, D, {1, T * D + B, D, 1}, type))},
  };
  return all;
}
#undef LAYOUT

struct Given {
  at::Tensor q, k, v, direction;
  AttentionOptions options;
  AttentionExtras extras;
};

// The output and gradients of q, k and v; output and logsumexp without a graph.
std::vector<at::Tensor> results_of(const Given& given) {
  std::vector<at::Tensor> leaves;
  for (const auto& x : {given.q, given.k, given.v}) leaves.push_back(x.detach().requires_grad_(true));
  const auto y = attention(leaves[0], leaves[1], leaves[2], given.options, given.extras).output;
  auto results = torch::autograd::grad({y}, leaves, {given.direction});
  results.insert(results.begin(), y.detach());
  const at::NoGradGuard no_grad;
  auto extras = given.extras;
  extras.logsumexp = true;
  const auto whole = attention(given.q, given.k, given.v, given.options, extras);
  results.push_back(whole.output);
  results.push_back(whole.logsumexp);
  return results;
}

at::Tensor dense(const at::Tensor& x) {
  return x.clone(at::MemoryFormat::Contiguous).resolve_neg();
}

}  // namespace

TEST_CASE("a call of any strides is as if its tensors were contiguous", "[strides]") {
  const auto cell = GENERATE(from_range(cells()));
  // There are fewer rows than features, or more; the comparison of the two decides the memory layout of an
  // output of PyTorch.
  const auto [L, S] = GENERATE(std::pair<int64_t, int64_t>{5, 7}, std::pair<int64_t, int64_t>{12, 20});
  constexpr int64_t B = 2, H = 2, D = 8;
  for (const auto& layout : layouts()) {
    for (const std::string role : {"q", "k", "v", "direction", "all", "all, masked"}) {
      const bool all = role.starts_with("all"), masked = role.ends_with("masked");
      INFO(cell << ", " << role << " of " << layout.name << ", L " << L << ", S " << S);
      at::manual_seed(11);
      const auto draw = [&](const char* name, int64_t rows) {
        const auto x =
            role == name || all ? layout.make(B, H, rows, D, cell.type) : numbers({B, H, rows, D}, cell.type);
        return cell.device.is_cpu() ? x : x.to(cell.device);
      };
      Given given{
          draw("q", L), draw("k", S), draw("v", S), draw("direction", L), {.backend = cell.backend}, {}};
      if (masked) {
        given.options.causal = Causal::BottomRight;
        given.extras.mask = Mask::bias(layout.make(B, H, L, S, cell.type).to(cell.device));
      }
      auto flat = given;
      for (auto* x : {&flat.q, &flat.k, &flat.v, &flat.direction}) *x = dense(*x);
      if (masked) flat.extras.mask = Mask::bias(dense(given.extras.mask.bias_terms().front()));
      if (!cell.refusal(flat.q, flat.k, flat.v, flat.options, flat.extras).empty()) continue;
      // The options allow the call on every backend; only PyTorch may refuse it because of its strides.
      if (!cell.refusal(given.q, given.k, given.v, given.options, given.extras).empty()) {
        CHECK(cell.backend == Backend::Torch);
        continue;
      }
      const auto got = results_of(given), want = results_of(flat);
      double largest = 0.0;  // as in attentive::parity, the tolerance is relative to the largest gradient
      for (size_t n = 1; n < 4; ++n) largest = std::max(largest, largest_magnitude(want[n]));
      const double allowed = tolerance_of(cell.type, /*gradient=*/true).allowed(largest);
      for (size_t n = 0; n < want.size(); ++n) {
        INFO("output, gradients of q, k, v, output, logsumexp: " << n);
        const bool gradient = n > 0 && n < 4;
        CHECK(difference(got[n], want[n], gradient ? Tolerance{0.0, allowed} : tolerance_of(cell.type)) ==
              "");
      }
    }
  }
}

namespace {

using Attention = std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)>;

// Returns the output and gradients of q, k and v, and the output without a graph.
std::vector<at::Tensor> results_of(const Attention& attend, const std::vector<at::Tensor>& qkv,
                                   const at::Tensor& direction) {
  std::vector<at::Tensor> leaves;
  for (const auto& x : qkv) leaves.push_back(x.detach().requires_grad_(true));
  const auto y = attend(leaves[0], leaves[1], leaves[2]);
  auto results = torch::autograd::grad({y}, leaves, {direction});
  results.push_back(y.detach());
  const at::NoGradGuard no_grad;
  results.push_back(attend(qkv[0], qkv[1], qkv[2]));
  return results;
}

void check_every_layout(const Attention& attend, at::ScalarType type) {
  constexpr int64_t B = 2, H = 2, T = 5, D = 8;
  for (const auto& layout : layouts()) {
    for (size_t role = 0; role < 4; ++role) {
      INFO(c10::toString(type) << ", " << layout.name << " of number " << role << " of q, k, v, direction");
      at::manual_seed(7);
      std::vector<at::Tensor> given;
      for (size_t n = 0; n < 4; ++n)
        given.push_back(n == role ? layout.make(B, H, T, D, type) : numbers({B, H, T, D}, type));
      auto flat = given;
      flat[role] = dense(given[role]);
      const auto got = results_of(attend, {given[0], given[1], given[2]}, given[3]),
                 want = results_of(attend, {flat[0], flat[1], flat[2]}, flat[3]);
      double largest = 0.0;
      for (size_t n = 0; n < 3; ++n) largest = std::max(largest, largest_magnitude(want[n]));
      const double allowed = tolerance_of(type, /*gradient=*/true).allowed(largest);
      for (size_t n = 0; n < want.size(); ++n)
        CHECK(difference(got[n], want[n], n < 3 ? Tolerance{0.0, allowed} : tolerance_of(type)) == "");
    }
  }
}

}  // namespace

TEST_CASE("packed and linear attention of any strides are as if their tensors were contiguous", "[strides]") {
  const auto type = GENERATE(from_range(kAllTypes));
  check_every_layout(
      [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
        const auto packed = [](const at::Tensor& x) { return x[0].transpose(0, 1); };
        const auto ends = at::tensor({0, 2, 5}, at::kLong);
        const auto y = attention_varlen(packed(q), packed(k), packed(v), ends, ends).output;
        return y.transpose(0, 1).unsqueeze(0).expand({2, 2, 5, 8});
      },
      type);
  check_every_layout(
      [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
        LinearAttentionCall call;
        call.causal = Causal::BottomRight;
        return linear_attention(q, k, v, call);
      },
      type);
}

TEST_CASE("windows over a series are queries like any others", "[strides]") {
  const auto backend = GENERATE(Backend::Auto, Backend::Torch);
  const auto type = GENERATE(from_range(kAllTypes));
  at::manual_seed(0);
  const auto q = numbers({12}, type).unfold(0, 8, 1);  // (5, 8)
  const auto k = numbers({20, 8}, type), v = numbers({20, 8}, type);
  const auto want = attention(q.contiguous(), k, v, {.backend = backend});
  CHECK(bit_equal(attention(q, k, v, {.backend = backend}), want));
}

// Tests `y += x` on a result that autograd tracks.

TEST_CASE("a result takes a change in place and the gradient is right", "[in_place]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  const auto type = GENERATE(at::kFloat, at::kDouble, at::kBFloat16, at::kHalf);
  const auto sizes = GENERATE(std::vector<int64_t>{9, 8}, std::vector<int64_t>{2, 33, 8},
                              std::vector<int64_t>{2, 4, 33, 8}, std::vector<int64_t>{2, 3, 4, 3, 8});
  const bool causal = GENERATE(false, true);
  AttentionOptions options{.causal = causal ? Causal::BottomRight : Causal::None, .backend = backend};
  at::manual_seed(4);
  const auto x = at::randn(sizes, at::kDouble).to(type).requires_grad_(true);
  auto asked = options;
  asked.backend = Backend::Auto;
  if (!takes(backend, x, x, x, asked)) return;
  INFO("backend " << to_string(backend) << ", dtype " << c10::toString(type) << ", rank " << sizes.size());
  // The second backward pass over the same graph sees the same change.
  const auto gradients = [&](const at::Tensor& y) {
    const auto loss = y.square().sum();
    const auto first = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
    CHECK(bit_equal(torch::autograd::grad({loss}, {x})[0], first));
    return first;
  };
  const auto plain = attention(x, x, x, options);
  const auto want = gradients(plain + x);
  auto y = attention(x, x, x, options);
  const auto before = y.detach().clone();
  CHECK(bit_equal(before, plain));
  y += x;
  CHECK(bit_equal(y, before + x));
  CHECK(bit_equal(gradients(y), want));

  const auto half = gradients(attention(x, x, x, options) * at::tensor({1.0, 0.0}).to(type).repeat({4}));
  auto part = attention(x, x, x, options);
  part.slice(-1, 1, 8, 2).zero_();
  CHECK(bit_equal(gradients(part), half));
}

TEST_CASE("dropout, grouped heads and masks live through a change in place", "[in_place]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  INFO("backend " << to_string(backend));
  at::manual_seed(4);
  const auto q = at::randn({2, 4, 70, 8}).requires_grad_(true);
  const auto k = at::randn({2, 2, 70, 8}).requires_grad_(true),
             v = at::randn({2, 2, 70, 8}).requires_grad_(true);
  AttentionOptions options{.causal = Causal::BottomRight, .backend = backend};
  AttentionExtras extras;
  extras.mask = Mask::key_lengths(at::tensor({70, 30}, at::kLong));
  if (backend != Backend::Torch) {
    options.dropout_p = 0.3;
    options.dropout_stream = DropoutStream::Counter;
    extras.logsumexp = true;
  }
  if (backend == Backend::Native && explain(q, k, v, {}, extras).chosen != Backend::Native)
    SKIP("no tile product");
  const auto gradients = [&](bool in_place) {
    at::manual_seed(9);
    auto result = attention(q, k, v, options, extras);
    auto &y = result.output, &statistics = result.logsumexp;
    if (in_place) {
      y *= q.detach();
    } else {
      y = y * q.detach();
    }
    auto loss = y.square().sum();
    // Only reading the reference's logsumexp is defined, since autograd may have saved it.
    if (statistics.defined()) {
      if (in_place && backend != Backend::Reference) {
        statistics *= 2;
      } else {
        statistics = statistics * 2;
      }
      loss = loss + statistics.sum();
    }
    return torch::autograd::grad({loss}, {q, k, v});
  };
  const auto want = gradients(false), got = gradients(true);
  for (size_t n = 0; n < want.size(); ++n) CHECK(bit_equal(got[n], want[n]));
}

TEST_CASE("a packed result takes a change in place", "[in_place]") {
  const auto ends = at::tensor({0, 5, 11}, at::kLong);
  const auto gradient = [&](bool in_place) {
    at::manual_seed(3);
    const auto q = at::randn({11, 4, 8}).requires_grad_(true);
    auto y = attention_varlen(q, q, q, ends, ends).output;
    if (in_place) {
      y += q;
    } else {
      y = y + q;
    }
    return torch::autograd::grad({y.square().sum()}, {q})[0];
  };
  CHECK(bit_equal(gradient(true), gradient(false)));
}

// A view may have a pending change of sign, such as the imaginary part of a conjugate. Code that reads memory
// must apply it.

namespace {

// Returns x as the pending negation of another tensor.
at::Tensor pending(const at::Tensor& x) {
  const auto result = at::_neg_view(-x);
  REQUIRE(result.is_neg());
  return result;
}

struct NegatedCall {
  at::Tensor q, k, v, bias, slopes, sinks;
  std::array<at::Tensor*, 6> tensors() { return {&q, &k, &v, &bias, &slopes, &sinks}; }

  AttentionExtras extras() const {
    AttentionExtras result;
    if (bias.defined()) result.mask = Mask::bias(bias);
    result.alibi_slopes = slopes;
    result.sinks = sinks;
    return result;
  }
  // Returns the output and the gradients of q, k and v, along a direction that may have a pending sign as
  // well.
  std::vector<at::Tensor> run(Backend backend, bool pending_direction) const {
    std::vector<at::Tensor> leaves;
    for (const auto& x : {q, k, v}) leaves.push_back(x.detach().requires_grad_(true));
    const auto y = attention(leaves[0], leaves[1], leaves[2], {.backend = backend}, extras()).output;
    at::manual_seed(8);
    const auto direction = at::randn(y.sizes());
    auto results = torch::autograd::grad({y}, leaves, {pending_direction ? pending(direction) : direction});
    results.push_back(y.detach());
    return results;
  }
};

}  // namespace

TEST_CASE("a pending sign counts in every tensor of attention and in the incoming gradient",
          "[negative_bit]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  const int64_t dim = GENERATE(1, 8);
  const int64_t queries = GENERATE(2, 20);
  const bool decorated = GENERATE(false, true);
  at::manual_seed(2);
  NegatedCall call{
      at::randn({2, 4, queries, dim}), at::randn({2, 2, 20, dim}), at::randn({2, 2, 20, dim}), {}, {}, {}};
  if (decorated) {
    call.bias = at::randn({queries, 20});
    call.slopes = at::rand({4});
    call.sinks = at::randn({4});
  }
  bool taken = backend == Backend::Auto;
  for (const auto& candidate : explain(call.q, call.k, call.v, {}, call.extras()).candidates)
    taken = taken || (candidate.backend == backend && candidate.available);
  if (!taken) return;
  const auto want = call.run(backend, false);
  const auto check = [&](const std::vector<at::Tensor>& got) {
    for (size_t n = 0; n < want.size(); ++n) CHECK_WITHIN(got[n], want[n], {1e-5, 2e-6});
  };
  check(call.run(backend, true));
  const auto tensors = call.tensors();
  for (size_t n = 0; n < tensors.size(); ++n) {
    if (!tensors[n]->defined()) continue;
    INFO("tensor " << n << ", backend " << to_string(backend) << ", head_dim " << dim);
    const auto given = *tensors[n];
    *tensors[n] = pending(given);
    check(call.run(backend, false));
    *tensors[n] = given;
  }
}

TEST_CASE("a pending sign counts in lengths", "[negative_bit]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  at::manual_seed(2);
  const auto x = at::randn({2, 1, 20, 8});
  const auto lengths = at::full({2}, 13, at::kLong);
  const auto run = [&](const at::Tensor& t) {
    return attention(x, x, x, {.backend = backend}, Mask::key_lengths(t));
  };
  if (backend == Backend::Native && explain(x, x, x).chosen != Backend::Native) SKIP("no tile product");
  CHECK(bit_equal(run(pending(lengths)), run(lengths)));
}

TEST_CASE("a pending sign counts wherever memory is read", "[negative_bit]") {
  const auto x = at::randn({3, 128}), direction = at::randn({3, 128});
  const auto check = [&](const auto& f) {
    const auto run = [&](const at::Tensor& input, const at::Tensor& gradient) {
      const auto leaf = input.detach().requires_grad_(true);
      at::manual_seed(3);
      const auto y = f(leaf);
      return std::vector<at::Tensor>{y.detach(), torch::autograd::grad({y}, {leaf}, {gradient})[0]};
    };
    const auto want = run(x, direction);
    for (const auto& got : {run(pending(x), direction), run(x, pending(direction))}) {
      for (size_t n = 0; n < want.size(); ++n) CHECK_WITHIN(got[n], want[n], {1e-6, 1e-6});
    }
  };
  check(gelu_tanh);
  check([](const at::Tensor& t) { return drop_features(t, 0.4, true); });
  check([&](const at::Tensor& t) { return add_dropped(x, t, 0.4, true); });
  check([&](const at::Tensor& t) { return add_dropped(t, x, 0.4, true); });
  check([&](const at::Tensor& t) {
    const auto heads = t.view({3, 1, 16, 8});
    LinearAttentionCall causal;
    causal.causal = Causal::BottomRight;
    causal.chunk_size = 5;
    return linear_attention(heads, heads, heads, causal).reshape({3, 128});
  });

  const at::NoGradGuard no_grad;
  const auto weight = at::randn({4, 128}), bias = at::randn({4});
  const auto want = linear(x, weight, bias);
  CHECK_CLOSE(linear(pending(x), weight, bias), want);
  CHECK_CLOSE(linear(x, pending(weight), bias), want);
  CHECK_CLOSE(linear(x, weight, pending(bias)), want);
  const auto logits = at::randn({9}, at::kDouble);
  CHECK(sample_token(pending(logits), {.temperature = 0}, {}) == logits.argmax().item<int64_t>());
}
