#include <limits>

#include <ATen/autocast_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/functional/attention.h>
#include <attentive/functional/explain.h>

#include "support/compare.h"

using namespace attentive;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

at::Tensor random(at::IntArrayRef sizes) {
  return at::randn(sizes);
}

Explanation::Candidate find(const Explanation& explanation, Backend backend) {
  for (const auto& candidate : explanation.candidates) {
    if (candidate.backend == backend) return candidate;
  }
  return {backend, false, "absent"};
}

}  // namespace

TEST_CASE("Backend::Torch equals the reference where it does not refuse", "[backend][torch]") {
  at::manual_seed(2);
  auto q = random({2, 4, 9, 8}), k = random({2, 2, 9, 8}), v = random({2, 2, 9, 8});
  AttentionOptions options;
  AttentionExtras extras;
  SECTION("plain, grouped heads") {}
  SECTION("scale") {
    options.scale = -0.4;
  }
  SECTION("causal") {
    options.causal = GENERATE(Causal::BottomRight, Causal::TopLeft);
  }
  SECTION("causal with fewer queries") {
    q = q.slice(2, 0, 5);
    options.causal = GENERATE(Causal::BottomRight, Causal::TopLeft);
  }
  SECTION("causal with fewer keys: queries without keys") {
    k = k.slice(2, 0, 5);
    v = v.slice(2, 0, 5);
    options.causal = GENERATE(Causal::BottomRight, Causal::TopLeft);
  }
  SECTION("one query") {
    q = q.slice(2, 0, 1);
    options.causal = Causal::BottomRight;
  }
  SECTION("keep mask with an empty row") {
    auto keep = at::rand({2, 4, 9, 9}).gt(0.4);
    keep.select(2, 3).fill_(false);
    extras.mask = keep;
  }
  SECTION("key mask") {
    extras.mask = Mask::key_keep(at::rand({2, 9}).gt(0.3));
  }
  SECTION("bias") {
    extras.mask = Mask::bias(random({4, 9, 9}).unsqueeze(0));
  }
  SECTION("bias, keep and causal") {
    extras.mask = Mask::bias(random({9, 9})) & Mask::keep(at::rand({9, 9}).gt(0.3));
    options.causal = Causal::BottomRight;
  }
  const auto run = [&](Backend backend) {
    options.backend = backend;
    std::vector<at::Tensor> leaves;
    for (const auto& x : {q, k, v}) leaves.push_back(x.detach().clone().requires_grad_(true));
    extras.logsumexp = false;
    const auto output = attention(leaves[0], leaves[1], leaves[2], options, extras).output;
    output.square().sum().backward();
    const at::NoGradGuard no_grad;
    extras.logsumexp = true;
    const auto lse = attention(q, k, v, options, extras).logsumexp;
    return std::vector<at::Tensor>{output, lse, leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
  };
  CHECK(find(explain(q, k, v, options, extras), Backend::Torch).available);
  const auto want = run(Backend::Reference), got = run(Backend::Torch);
  for (size_t n = 0; n < want.size(); ++n) {
    INFO("result " << n << " (output, logsumexp, gradients of q, k, v)");
    CHECK_WITHIN(got[n], want[n], {1e-5, n < 2 ? 2e-6 : 5e-6});
  }
}

TEST_CASE("Backend::Torch refuses what it cannot express, with the reason", "[backend][torch][errors]") {
  const auto q = random({1, 2, 4, 8}), k = random({1, 2, 6, 8});
  auto v = random({1, 2, 6, 8});
  AttentionOptions options{.backend = Backend::Torch};
  AttentionExtras extras;
  const char* reason = "";
  SECTION("softcap") {
    options.softcap = 1.0;
    reason = "no softcap";
  }
  SECTION("dropout") {
    options.dropout_p = 0.1;
    reason = "no dropout";
  }
  SECTION("window") {
    options.window = {2, 0};
    reason = "no window";
  }
  SECTION("alibi") {
    extras.alibi_slopes = at::ones({2});
    reason = "no ALiBi";
  }
  SECTION("sinks") {
    options.softmax_plus_one = true;
    reason = "no sinks";
  }
  SECTION("weights") {
    extras.weights = Weights::Clean;
    reason = "cannot return the weights";
  }
  SECTION("value dim") {
    v = random({1, 2, 6, 3});
    reason = "need v to have the head_dim of q";
  }
  SECTION("masked NaN") {
    v[0][0][5] = std::numeric_limits<float>::quiet_NaN();
    extras.mask = Mask::key_lengths(at::ones({1}, at::kLong));
    reason = "NaN or Inf";
  }
  SECTION("masked score that overflows") {
    k[0][0][5].fill_(1e38);
    extras.mask = Mask::key_lengths(at::ones({1}, at::kLong));
    reason = "products may overflow";
  }
  SECTION("score that its scale makes overflow") {
    k[0][0][5].fill_(1e10);
    options.scale = 1e30;
    extras.mask = Mask::key_lengths(at::ones({1}, at::kLong));
    reason = "products may overflow";
  }
  SECTION("masked value whose product with a gradient may overflow") {
    v[0][0][5].fill_(1e38);
    v.requires_grad_(true);
    extras.mask = Mask::key_lengths(at::ones({1}, at::kLong));
    reason = "products may overflow";
  }
  SECTION("causal flag and a negative scale") {
    options.causal = Causal::TopLeft;
    options.scale = -0.5;
    reason = "hides scores with -inf before scaling";
  }
  SECTION("bias with gradient") {
    extras.mask = Mask::bias(at::randn({4, 6}).requires_grad_(true));
    reason = "computes no gradient for the bias";
  }
  CHECK_THROWS_MATCHES(attention(q, k, v, options, extras), c10::ValueError,
                       MessageMatches(ContainsSubstring("backend torch cannot express this call") &&
                                      ContainsSubstring(reason)));
  options.backend = Backend::Auto;
  const auto explanation = explain(q, k, v, options, extras);
  CHECK(explanation.chosen != Backend::Torch);
  CHECK_THAT(find(explanation, Backend::Torch).reason, ContainsSubstring(reason));
  CHECK_NOTHROW(attention(q, k, v, options, extras));
}

TEST_CASE("Backend::Torch keeps what is large and harmless", "[backend][torch]") {
  const auto q = random({1, 2, 4, 8});
  auto k = random({1, 2, 6, 8}), v = random({1, 2, 6, 8});
  k[0][0][5].fill_(1e30);
  v[0][0][5].fill_(1e38);
  const auto mask = Mask::key_lengths(at::full({1}, 5, at::kLong));
  const auto run = [&](Backend backend) { return attention(q, k, v, {.backend = backend}, mask); };
  CHECK_CLOSE(run(Backend::Torch), run(Backend::Reference));
  v[0][0][5].fill_(1e15);
  v.requires_grad_(true);
  CHECK_CLOSE(run(Backend::Torch), run(Backend::Reference));
}

TEST_CASE("autocast casts the inputs, and the reference still accumulates in float32",
          "[backend][autocast]") {
  const auto backend = GENERATE(Backend::Reference, Backend::Torch);
  const auto q = random({1, 2, 32, 16}), k = random({1, 2, 32, 16}), v = random({1, 2, 32, 16});
  const AttentionOptions options{.backend = backend};
  const auto bf16 = [](const at::Tensor& x) { return x.to(at::kBFloat16); };
  const auto want = attention(bf16(q), bf16(k), bf16(v), options);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto got = attention(q, k, v, options);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK(got.scalar_type() == at::kBFloat16);
  CHECK(bit_equal(got, want));
}

TEST_CASE("every backend and dtype computes under InferenceMode, and trains afterwards", "[backend]") {
  const auto backend = GENERATE(Backend::Auto, Backend::Torch, Backend::Native, Backend::Reference);
  const auto type = GENERATE(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf);
  const bool causal = GENERATE(false, true), leaf = GENERATE(false, true);
  const AttentionOptions options{.causal = causal ? Causal::BottomRight : Causal::None, .backend = backend};
  at::manual_seed(6);
  const auto x = random({1, 2, 6, 8}).to(type).requires_grad_(leaf);
  if (backend != Backend::Auto && !find(explain(x, x, x, {.causal = options.causal}), backend).available)
    return;
  INFO("backend " << to_string(backend) << ", dtype " << c10::toString(type));
  const auto mask = Mask::key_lengths(at::full({1}, 4, at::kLong));
  at::Tensor plain, masked;
  {
    const at::NoGradGuard no_grad;
    plain = attention(x, x, x, options);
    masked = attention(x, x, x, options, mask);
  }
  {
    const c10::InferenceMode inference;
    const auto inside = x.clone();
    REQUIRE(inside.is_inference());
    for (const auto& q : {x, inside}) {
      CHECK(bit_equal(attention(q, q, q, options), plain));
      CHECK(bit_equal(attention(q, q, q, options, mask), masked));
    }
  }
  if (leaf) CHECK_NOTHROW(attention(x, x, x, options, mask).sum().backward());
}
