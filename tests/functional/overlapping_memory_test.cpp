// Tensors whose rows, heads or items share memory: windows over a series, and what expand() repeats.

#include <array>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>
#include <attentive/functional/linear_attention.h>

#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr std::array kBackends = {Backend::Reference, Backend::Torch, Backend::Native, Backend::Auto};
constexpr std::array kTypes = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

struct Layout {
  const char* name;
  std::array<int64_t, 4> strides;  // of (2, 2, 5, 8)
};
constexpr std::array kLayouts = {
    Layout{"rows one number apart", {80, 40, 1, 1}},
    Layout{"rows half a row apart", {80, 40, 4, 1}},
    Layout{"heads one number apart", {80, 1, 8, 1}},
    Layout{"heads one row apart", {80, 8, 8, 1}},
    Layout{"items one number apart", {1, 40, 8, 1}},
    Layout{"everything one number apart", {1, 1, 1, 1}},
    Layout{"numbers further apart than rows", {80, 40, 1, 5}},
    Layout{"one row for all", {80, 40, 0, 1}},
    Layout{"one head for all", {40, 0, 8, 1}},
    Layout{"one item for all", {0, 40, 8, 1}},
    Layout{"one number for all", {0, 0, 0, 0}},
};

// The same numbers as x, which is a view of a series, at strides that share memory.
at::Tensor laid(const at::Tensor& series, const Layout& layout) {
  return series.as_strided({2, 2, 5, 8}, layout.strides);
}

using Attention = std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)>;

// Output and gradients of q, k and v; the incoming gradient as it is given.
std::vector<at::Tensor> results(const Attention& f, const std::array<at::Tensor, 3>& x,
                                const at::Tensor& direction) {
  std::vector<at::Tensor> leaves;
  for (const auto& t : x) leaves.push_back(t.detach().requires_grad_(true));
  const auto y = f(leaves[0], leaves[1], leaves[2]);
  auto found = torch::autograd::grad({y}, leaves, {direction});
  found.push_back(y.detach());
  const at::NoGradGuard no_grad;
  found.push_back(f(x[0], x[1], x[2]));
  return found;
}

void check_same(const Attention& f, at::ScalarType type) {
  at::manual_seed(7);
  const auto number = [&](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble).to(type); };
  const std::array plain = {number({2, 2, 5, 8}), number({2, 2, 5, 8}), number({2, 2, 5, 8})};
  const auto direction = number({2, 2, 5, 8});
  const Tolerance tolerance = type == at::kDouble  ? Tolerance{1e-12, 1e-13}
                              : type == at::kFloat ? Tolerance{1e-5, 5e-6}
                                                   : Tolerance{2e-2, 2e-2};
  for (const auto& layout : kLayouts) {
    for (size_t n = 0; n < 4; ++n) {
      INFO(layout.name << ", " << (n < 3 ? std::string(1, "qkv"[n]) : "incoming gradient"));
      const auto shared = laid(number({160}), layout);
      auto x = plain, want_x = plain;
      if (n < 3) {
        x[n] = shared;
        want_x[n] = shared.contiguous();
      }
      const auto got = results(f, x, n < 3 ? direction : shared);
      const auto want = results(f, want_x, n < 3 ? direction : shared.contiguous());
      for (size_t i = 0; i < want.size(); ++i) CHECK(difference(got[i], want[i], tolerance) == "");
    }
  }
}

}  // namespace

TEST_CASE("attention over memory that is shared is as over copies", "[overlapping_memory]") {
  const auto backend = GENERATE(from_range(kBackends));
  const auto type = GENERATE(from_range(kTypes));
  const auto causal = GENERATE(Causal::None, Causal::BottomRight);
  const auto probe = at::randn({2, 2, 5, 8}).to(type);
  for (const auto& candidate : explain(probe, probe, probe, {.causal = causal}).candidates) {
    if (candidate.backend == backend && !candidate.available) return;
  }
  INFO("backend " << to_string(backend) << ", dtype " << c10::toString(type));
  check_same([&](const at::Tensor& q, const at::Tensor& k,
                 const at::Tensor& v) { return attention(q, k, v, {.causal = causal, .backend = backend}); },
             type);
}

TEST_CASE("packed and linear attention over memory that is shared are as over copies",
          "[overlapping_memory]") {
  const auto type = GENERATE(from_range(kTypes));
  INFO(c10::toString(type));
  check_same(
      [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
        const auto packed = [](const at::Tensor& x) { return x[0].transpose(0, 1); };
        const auto ends = at::tensor({0, 2, 5}, at::kLong);
        const auto y = attention_varlen(packed(q), packed(k), packed(v), ends, ends).output;
        return y.transpose(0, 1).unsqueeze(0).expand({2, 2, 5, 8});
      },
      type);
  check_same(
      [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
        LinearAttentionCall call;
        call.causal = Causal::BottomRight;
        return linear_attention(q, k, v, call);
      },
      type);
}

TEST_CASE("windows over a series are queries like any others", "[overlapping_memory]") {
  const auto backend = GENERATE(Backend::Auto, Backend::Torch);
  const auto type = GENERATE(from_range(kTypes));
  at::manual_seed(0);
  const auto q = at::randn({12}, at::kDouble).to(type).unfold(0, 8, 1);  // (5, 8)
  const auto k = at::randn({20, 8}, at::kDouble).to(type), v = at::randn({20, 8}, at::kDouble).to(type);
  const auto want = attention(q.contiguous(), k, v, {.backend = backend});
  CHECK(bit_equal(attention(q, k, v, {.backend = backend}), want));
}
