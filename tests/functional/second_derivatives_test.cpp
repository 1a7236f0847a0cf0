// Second derivatives: the reference and the native CPU kernel have them; every other backend throws an error
// that names it.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>
#include <attentive/score/score_mod.h>

#include "kernels/native_backward.h"
#include "support/cells.h"
#include "support/errors.h"
#include "support/gradcheck.h"
#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;
using torch::autograd::grad;

namespace {

std::string refusal(Backend backend) {
  return "attention: backend " + std::string(to_string(backend)) +
         " has no second derivative; differentiate twice through Backend::Reference";
}

std::string error_in(const std::function<void()>& call) {
  return error_of<c10::NotImplementedError>(call);
}

// Autocast of the CPU to bfloat16 for a scope.
struct Autocast {
  Autocast() { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~Autocast() { at::autocast::set_autocast_enabled(at::kCPU, false); }
  Autocast(const Autocast&) = delete;
};

struct Derivatives {
  std::string refusal;
  std::vector<at::Tensor> first, second;  // of q, k, v, a bias and slopes that are learned, and the sinks
};

// Differentiates a call twice, with the same dropout bits on every backend.
Derivatives derivatives_of(const OptionCall& call, Backend backend) {
  auto options = call.options;
  options.backend = backend;
  auto extras = call.extras;
  std::vector<at::Tensor> leaves = leaves_of(call);
  if (extras.sinks.defined()) {
    extras.sinks = extras.sinks.detach().clone().requires_grad_(true);
    leaves.push_back(extras.sinks);
  }
  AttentionResult result;
  at::manual_seed(23);
  try {
    result = attention(call.q, call.k, call.v, options, extras);
  } catch (const c10::ValueError& error) {
    return {error.what_without_backtrace(), {}, {}};
  }
  auto loss = result.output.to(at::kDouble).square().sum();
  if (result.logsumexp.defined()) {  // -inf in a row without keys
    const auto logsumexp = result.logsumexp.to(at::kDouble);
    loss = loss + logsumexp.masked_fill(logsumexp.isinf(), 0.0).square().sum();
  }
  if (result.weights.defined()) loss = loss + result.weights.to(at::kDouble).sin().sum();
  Derivatives found{"", grad({loss}, leaves, {}, true, /*create_graph=*/true), {}};
  auto total = at::zeros({}, at::kDouble);
  for (const auto& first : found.first) total = total + first.to(at::kDouble).square().sum();
  found.second = grad({total}, leaves, {}, /*retain_graph=*/true);
  for (auto& first : found.first) first = first.detach();
  return found;
}

// Compares tensors, relative to the largest number of all that are wanted.
void check_near(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want, double tolerance) {
  double largest = 0.0;
  for (const auto& x : want) largest = std::max(largest, x.abs().max().item<double>());
  REQUIRE(got.size() == want.size());
  for (size_t n = 0; n < want.size(); ++n) {
    INFO("tensor " << n << " of q, k, v, bias, slopes, sinks");
    CHECK(difference(got[n].to(at::kDouble), want[n].to(at::kDouble), {0.0, tolerance * largest}) == "");
  }
}

// Checks both derivatives of the native kernel against those of the definition in float64, and returns
// whether it takes the call.
bool check_derivatives(const OptionCall& exact, at::ScalarType type) {
  const auto call = cast(exact, type);
  const auto native = derivatives_of(call, Backend::Native);
  if (!native.refusal.empty()) return false;
  const auto want = derivatives_of(cast(call, at::kDouble), Backend::Reference);
  const bool is_short = type != at::kFloat;
  check_near(native.first, want.first, is_short ? 2e-2 : 2e-5);
  check_near(native.second, want.second, is_short ? 4e-2 : 5e-5);
  return true;
}

}  // namespace

TEST_CASE("every option's gradient through the native kernel is differentiated again",
          "[second_derivatives]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  CHECK(check_derivatives(plain_call(), type));
  size_t taken = 0;
  for (const auto& option : option_cases()) {
    INFO("option: " << option.name << ", dtype " << c10::toString(type));
    auto call = plain_call();
    option.apply(call);
    taken += check_derivatives(call, type);
  }
  CHECK(taken >= option_cases().size() / 2);
}

TEST_CASE("every pair of options' gradient through the native kernel is differentiated again",
          "[second_derivatives]") {
  const auto& cases = option_cases();
  for (size_t first = 0; first < cases.size(); ++first) {
    for (size_t second = first + 1; second < cases.size(); ++second) {
      if (cases[first].group == cases[second].group) continue;
      INFO("options: " << cases[first].name << ", " << cases[second].name);
      auto call = plain_call();
      cases[first].apply(call);
      cases[second].apply(call);
      check_derivatives(call, at::kFloat);
    }
  }
}

TEST_CASE("the native kernel's own gradients do not depend on create_graph", "[second_derivatives]") {
  at::manual_seed(2);
  const auto draw = [] { return at::randn({1, 2, 40, 8}).requires_grad_(true); };
  const auto q = draw(), k = draw(), v = draw();
  const AttentionOptions options{.causal = Causal::BottomRight, .dropout_p = 0.2, .backend = Backend::Native};
  const auto loss = [&] {
    at::manual_seed(5);
    return attention(q, k, v, options).square().sum();
  };
  const auto before = grad({loss()}, {q, k, v});
  const auto with_graph = grad({loss()}, {q, k, v}, {}, true, /*create_graph=*/true);
  const auto after = grad({loss()}, {q, k, v});
  for (size_t n = 0; n < before.size(); ++n) {
    CHECK(bit_equal(before[n], after[n]));
    CHECK_FALSE(before[n].requires_grad());
    CHECK(with_graph[n].allclose(before[n], 1e-4, 1e-5));
  }
}

TEST_CASE("the gradient of a score and of what it captured is differentiated again",
          "[second_derivatives][score]") {
  at::manual_seed(2);
  const auto draw = [](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); };
  const auto q = draw({2, 4, 6, 8}), k = draw({2, 2, 7, 8}), v = draw({2, 2, 7, 5}), numbers = draw({4, 7});
  const auto derivatives = [&](at::ScalarType type, Backend backend) {
    std::vector<at::Tensor> leaves;
    for (const auto& x : {q, k, v, numbers}) leaves.push_back(x.to(type).requires_grad_(true));
    const auto table = captured(leaves[3]);
    const auto score =
        score_mod([=](auto s, auto pair) { return s * sigmoid(s * table(pair.head, pair.key)); });
    const auto mask = mask_mod([](auto pair) { return (pair.key <= pair.query) | (pair.key < 2); });
    const AttentionExtras extras{.score = score, .block_mask = mask};
    CHECK((backend != Backend::Auto ||
           explain(leaves[0], leaves[1], leaves[2], {}, extras).chosen == Backend::Native));
    const auto loss =
        attention(leaves[0], leaves[1], leaves[2], {.backend = backend}, extras).output.square().sum();
    auto first = grad({loss}, leaves, {}, true, /*create_graph=*/true);
    auto total = at::zeros({}, first[0].options());
    for (const auto& one : first) total = total + one.square().sum();
    auto second = grad({total}, leaves);
    for (auto& one : first) one = one.detach();
    return std::pair(first, second);
  };
  const auto got = derivatives(at::kFloat, Backend::Auto),
             want = derivatives(at::kDouble, Backend::Reference);
  check_near(got.first, want.first, 2e-5);
  check_near(got.second, want.second, 5e-5);
}

TEST_CASE("under create_graph, captured indices are read as they were in the forward pass",
          "[second_derivatives][score]") {
  at::manual_seed(2);
  const auto q = at::randn({1, 2, 6, 8}).requires_grad_(true), numbers = at::randn({9}).requires_grad_(true);
  const auto place = at::arange(6, at::kLong);
  const auto table = captured(numbers);
  const auto index = captured_indices(place);
  const auto score = score_mod([=](auto s, auto pair) { return s * table(index(pair.key)); });
  const auto gradients = [&](bool refill) {
    const auto loss =
        attention(q, q, q, {.backend = Backend::Native}, {.score = score}).output.square().sum();
    if (refill) place.add_(3);
    auto found = grad({loss}, {q, numbers}, {}, true, /*create_graph=*/true);
    if (refill) place.sub_(3);
    return found;
  };
  const auto want = gradients(false), got = gradients(true);
  for (size_t n = 0; n < want.size(); ++n) CHECK(got[n].equal(want[n]));
}

TEST_CASE("a score under autocast has gradients of the dtype of each captured tensor",
          "[second_derivatives][score]") {
  at::manual_seed(2);
  const auto draw = [](at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(true); };
  const auto q = draw({1, 2, 6, 8}), k = draw({1, 2, 6, 8}), numbers = draw({2, 6});
  const auto table = captured(numbers);
  const AttentionExtras extras{
      .score = score_mod([=](auto s, auto pair) { return s + table(pair.head, pair.key); })};
  const auto gradients = [&] {
    const auto result = attention(q, k, k, {}, extras).output;
    return std::pair(result, grad({result.to(at::kFloat).square().sum()}, {q, k, numbers}));
  };
  const auto plain = gradients();
  const Autocast autocast;
  const auto cast = gradients();
  CHECK(cast.first.scalar_type() == at::kBFloat16);
  for (size_t n = 0; n < plain.second.size(); ++n) {
    CHECK(cast.second[n].scalar_type() == at::kFloat);
    CHECK(cast.second[n].allclose(plain.second[n], 2e-2, 3e-2));
  }
}

TEST_CASE("a gradient with a graph reads what the forward pass read", "[second_derivatives][errors]") {
  at::manual_seed(2);
  const auto q = at::randn({1, 2, 6, 8}).requires_grad_(true);
  auto given = at::randn({2}).requires_grad_(true);
  auto lengths = at::tensor({4}, at::kLong);
  const auto attend = [&](const at::Tensor& sinks) {
    return attention(q, q, q, {.backend = Backend::Native},
                     {.mask = Mask::key_lengths(lengths), .sinks = sinks})
        .output.square()
        .sum();
  };
  const auto sinks = given * 1;
  const auto want = grad({attend(sinks)}, {q})[0];
  const auto refilled = attend(sinks);
  lengths.fill_(6);
  CHECK(grad({refilled}, {q}, {}, true, /*create_graph=*/true)[0].allclose(want, 1e-4, 1e-5));
  lengths.fill_(4);
  const auto changed = attend(sinks);
  sinks.detach().add_(1);
  CHECK(error_of<c10::Error>([&] {
          grad({changed}, {q}, {}, true, /*create_graph=*/true);
        }).find("attention: sinks were changed in place after the forward pass") == 0);
  const auto nan = attend(at::full({2}, std::nan("")).requires_grad_(true));
  CHECK_NOTHROW(grad({nan}, {q}, {}, true, /*create_graph=*/true));
}

TEST_CASE("a second derivative under autocast keeps the precision of the first", "[second_derivatives]") {
  at::manual_seed(2);
  const auto call = cast(plain_call(), at::kFloat);
  const auto plain = derivatives_of(call, Backend::Native);
  const Autocast autocast;
  const auto loss = attention(call.q, call.k, call.v, {.backend = Backend::Native}).to(at::kDouble);
  const auto first = grad({loss.square().sum()}, {call.q}, {}, true, /*create_graph=*/true)[0];
  CHECK(first.scalar_type() == at::kFloat);
  CHECK(first.allclose(plain.first[0], 2e-2, 2e-2));
  CHECK(grad({first.square().sum()}, {call.q})[0].isfinite().all().item<bool>());
}

TEST_CASE("gradients of the reference are differentiated again", "[second_derivatives]") {
  const auto causal = GENERATE(Causal::None, Causal::BottomRight, Causal::TopLeft);
  const bool decorated = GENERATE(false, true);
  at::manual_seed(6);
  const auto draw = [](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); };
  std::vector<at::Tensor> inputs = {draw({1, 2, 3, 3}), draw({1, 1, 4, 3}), draw({1, 1, 4, 2})};
  if (decorated) {
    inputs.push_back(draw({1, 2, 3, 4}));
    inputs.push_back(draw({2}));
  }
  AttentionOptions options{.causal = causal, .backend = Backend::Reference};
  if (decorated) options.softcap = 2.0;
  const auto first = [&](const std::vector<at::Tensor>& x) {
    const at::AutoGradMode graph(true);
    AttentionExtras extras;
    extras.logsumexp = true;
    if (decorated) {
      extras.mask = Mask::bias(x[3]);
      extras.sinks = x[4];
    }
    const auto result = attention(x[0], x[1], x[2], options, extras);
    const auto loss = result.output.square().sum() + result.logsumexp.sin().sum();
    std::vector<at::Tensor> flat;
    for (const auto& gradient : grad({loss}, x, {}, /*retain_graph=*/true, /*create_graph=*/true))
      flat.push_back(gradient.flatten());
    return at::cat(flat).pow(2);
  };
  CHECK(gradcheck(first, inputs) == "");
}

TEST_CASE("a second derivative of any other backend ends in an error that names it and the remedy",
          "[second_derivatives][errors]") {
  const auto cell = GENERATE(from_range(cells()));
  const int64_t L = GENERATE(1, 20);
  const std::string kind = GENERATE("plain", "grouped heads", "lengths", "bias", "packed");
  INFO(cell << ", L " << L << ", " << kind);
  at::manual_seed(6);
  const auto draw = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).to(cell.device, cell.type).requires_grad_(true);
  };
  const int64_t heads = kind == "grouped heads" ? 1 : 2;
  const auto q = draw({1, 2, L, 4}), k = draw({1, heads, L + 3, 4}), v = draw({1, heads, L + 3, 4});
  AttentionExtras extras;
  if (kind == "lengths") extras.mask = Mask::key_lengths(at::tensor({L - 1}, at::kLong).to(cell.device));
  if (kind == "bias") extras.mask = Mask::bias(draw({L, L + 3}).detach());
  if (!cell.refusal(q, k, v, {}, extras).empty()) return;
  const AttentionOptions options{.backend = cell.backend};
  const auto chosen = explain(q, k, v, options, extras).chosen;
  const auto loss = [&] {
    if (kind != "packed") return attention(q, k, v, options, extras).output.square().sum();
    const auto rows = [](const at::Tensor& x) { return x.squeeze(0).transpose(0, 1); };
    const auto ends = [&](int64_t length) {
      return at::tensor({int64_t{0}, length}, at::kLong).to(cell.device);
    };
    return attention_varlen(rows(q), rows(k), rows(v), ends(L), ends(L + 3), options).output.square().sum();
  };
  const std::vector<at::Tensor> leaves = {q, k, v};
  // The first derivative and its graph are available.
  const auto first = grad({loss()}, leaves, {}, true, /*create_graph=*/true), plain = grad({loss()}, leaves);
  // The definition computes what the native CPU kernel would compute without a graph.
  const bool is_native = chosen == Backend::Native && cell.device.is_cpu();
  for (size_t n = 0; n < leaves.size(); ++n) {
    if (is_native) {
      const double near = cell.type == at::kBFloat16 ? 5e-2 : cell.type == at::kHalf ? 6e-3 : 1e-4;
      CHECK(first[n].allclose(plain[n], near, near));
    } else {
      CHECK(bit_equal(first[n], plain[n]));
    }
    REQUIRE(first[n].requires_grad());
    for (const auto& x : leaves) {
      const auto twice = [&] {
        return grad({first[n].square().sum()}, {x}, {}, /*retain_graph=*/true, false, /*allow_unused=*/true);
      };
      if (chosen == Backend::Reference || is_native) {
        CHECK_NOTHROW(twice());
      } else {
        CHECK(error_in(twice) == refusal(chosen));
      }
    }
  }
  // A gradient that is not differentiated again can be used normally.
  CHECK(first[0].detach().sum().isfinite().item<bool>());
}

TEST_CASE("gradients of sinks and of the logsumexp are differentiated again", "[second_derivatives]") {
  at::manual_seed(3);
  const auto q = at::randn({1, 2, 6, 8}), k = at::randn({1, 2, 6, 8});
  const bool of_logsumexp = GENERATE(false, true);
  const auto second = [&](Backend backend, at::ScalarType type) {
    const auto given = at::tensor({0.3, -0.2}, at::kDouble).to(type).requires_grad_(true);
    const auto keys = k.to(type).requires_grad_(true);
    const auto result =
        attention(q.to(type), keys, keys, {.backend = backend}, {.sinks = given * 2, .logsumexp = true});
    const auto loss = of_logsumexp ? result.logsumexp.square().sum() : result.output.square().sum();
    const auto first = grad({loss}, {given, keys}, {}, true, /*create_graph=*/true);
    return grad({first[0].square().sum() + first[1].square().sum()}, {given, keys});
  };
  const auto got = second(Backend::Native, at::kFloat), want = second(Backend::Reference, at::kDouble);
  check_near(got, want, 1e-5);
  // The logsumexp does not depend on the values.
  const auto values = at::randn({1, 2, 6, 8}).requires_grad_(true), keys = k.clone().requires_grad_(true);
  const auto only =
      attention(q, keys, values, {.backend = Backend::Native}, {.logsumexp = true}).logsumexp.sum();
  CHECK(grad({only}, {keys, values}, {}, true, /*create_graph=*/true)[1].eq(0).all().item<bool>());
}

TEST_CASE("a kernel with a graph of its own is differentiated once", "[second_derivatives][errors]") {
  const auto x = at::randn({3}, at::kDouble).requires_grad_(true);
  const auto y = kernels::differentiable_once(Backend::Torch, x).pow(3).sum();
  CHECK(bit_equal(grad({y}, {x}, {}, /*retain_graph=*/true)[0], 3 * x.detach().square()));
  const auto first = grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
  CHECK(bit_equal(first, 3 * x.detach().square()));
  CHECK(error_in([&] { grad({first.sum()}, {x}); }) == refusal(Backend::Torch));
}
