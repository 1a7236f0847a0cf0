// Accelerated calls against float64: results, gradients, layouts, threads, dropout.

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>
#include <attentive/parity/compare.h>

#include "accelerate/sdpa_call.h"
#include "accelerate/sdpa_calls.h"
#include "support/memory_meter.h"
#include "support/saved_tensor_hooks.h"

using namespace attentive;
using namespace attentive::test;
using accelerate::EverySizeGuard;

namespace {

int64_t taken() {
  return sdpa_report().taken;
}

struct Threads {
  explicit Threads(int count) : before(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before); }
  Threads(const Threads&) = delete;
  int before;
};

}  // namespace

TEST_CASE("accelerated calls and their gradients equal float64", "[accelerate]") {
  const EverySizeGuard every_size;
  const SdpaGuard guard;
  for (const auto& call : sdpa_cases()) {
    INFO(call.name << ", " << c10::toString(call.q.scalar_type()));
    reset_sdpa_report();
    const auto got = run(call);
    CHECK(to_string(sdpa_report()) == "        1 taken\n        0 left to PyTorch\n");
    const auto want = run(cast(call, at::kDouble));
    CHECK(got.error.empty());
    REQUIRE(got.tensors.size() == want.tensors.size());
    for (size_t n = 0; n < want.tensors.size(); ++n) {
      INFO("tensor " << n << " of output, gradients of q, k, v, mask");
      CHECK(distance(got.tensors[n], want.tensors[n]) < limit_of(call.q.scalar_type()));
    }
    reset_sdpa_report();
    CHECK(distance(run(call, false).tensors[0], want.tensors[0]) < limit_of(call.q.scalar_type()));
    CHECK(taken() == 1);
  }
}

TEST_CASE("hooks of saved tensors change no derivative of an accelerated call", "[accelerate]") {
  const EverySizeGuard every_size;
  const SdpaGuard guard;
  for (auto call : sdpa_cases()) {
    std::vector<at::Tensor> leaves = {call.q, call.k, call.v};
    if (call.mask_gradient) leaves.push_back(call.mask);
    for (const auto& x : leaves) x.requires_grad_(true);
    call.dropout_p = call.mask_gradient ? 0.2 : 0.0;
    const auto derivatives = [&] {
      return derivatives_of(
          [&] {
            at::manual_seed(3);
            return sdpa(call).to(at::kDouble).square().sum();
          },
          leaves);
    };
    const auto want = derivatives();
    for (const auto& hook : kSavedTensorHooks) {
      INFO(call.name << ", " << hook.name);
      const SavedTensorHooksGuard hooked(hook);
      CHECK(distance(derivatives(), want) <= 10 * limit_of(call.q.scalar_type()));
    }
  }
}

TEST_CASE("an accelerated call has the bits of attention()", "[accelerate]") {
  const EverySizeGuard every_size;
  const SdpaGuard guard;
  at::manual_seed(5);
  for (const double dropout : {0.0, 0.2}) {
    auto call = random_call("causal", {.queries = 150, .keys = 150, .by_token = true});
    call.causal = true;
    call.dropout_p = dropout;
    const auto got = run(call);
    const auto q = call.q.clone().requires_grad_(), k = call.k.clone().requires_grad_(),
               v = call.v.clone().requires_grad_();
    at::manual_seed(3);
    const auto y = attention(
        q, k, v, {.causal = Causal::TopLeft, .dropout_p = dropout, .dropout_stream = DropoutStream::Counter});
    at::manual_seed(4);
    y.backward(at::randn(y.sizes()));
    CHECK(bit_equal(got.tensors[0], y.detach()));
    CHECK(bit_equal(got.tensors[1], q.grad()));
    CHECK(bit_equal(got.tensors[2], k.grad()));
    CHECK(bit_equal(got.tensors[3], v.grad()));
  }
}

TEST_CASE("keys and values of one item have the bits of keys for each, and the sums of their gradients",
          "[accelerate]") {
  const EverySizeGuard every_size;
  const SdpaGuard guard;
  at::manual_seed(16);
  const SdpaShape shape = {.batch = 5, .kv_heads = 2, .queries = 70, .keys = 300};
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const double dropout : {0.0, 0.2}) {
      auto call = random_call("shared", shape, type);
      call.grouped = true;
      call.dropout_p = dropout;
      call.mask = some_pairs(70, 300, true);
      call.k = call.k.narrow(0, 0, 1);
      call.v = call.v.narrow(0, 0, 1);
      auto whole = call;
      for (auto* x : {&whole.k, &whole.v}) *x = x->repeat({5, 1, 1, 1});
      const auto want = run(whole);
      reset_sdpa_report();
      const auto got = run(call);
      CHECK(taken() == 1);
      CHECK(bit_equal(got.tensors[0], want.tensors[0]));
      CHECK(bit_equal(got.tensors[1], want.tensors[1]));
      for (size_t n = 2; n < 4; ++n) {
        auto sum = want.tensors[n].narrow(0, 0, 1);
        for (int64_t b = 1; b < 5; ++b) sum = sum + want.tensors[n].narrow(0, b, 1).to(at::kFloat);
        // Of a half type, the items' gradients are rounded, but not those that are added up.
        if (type == at::kFloat) CHECK(bit_equal(got.tensors[n], sum));
        CHECK(distance(got.tensors[n], sum) < limit_of(type));
      }
      for (const int count : {1, 3}) {
        const Threads threads(count);
        CHECK(same_bits(run(call), got));
      }
    }
  }
}

TEST_CASE("keys and values of one item are neither copied for the others nor are their gradients",
          "[accelerate]") {
  const EverySizeGuard every_size;
  const SdpaGuard guard;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto call = random_call("shared", {.batch = 8, .queries = 16, .keys = 2048}, type);
    const auto q = call.q.requires_grad_(), k = call.k.narrow(0, 0, 1).detach().requires_grad_(),
               v = call.v.narrow(0, 0, 1).detach().requires_grad_();
    const auto item = static_cast<int64_t>(k.nbytes());
    const auto gaps = at::randn({1, 4, 2048, 32}).to(type).slice(3, 0, 32, 2);
    {
      const at::NoGradGuard no_grad;
      const MemoryMeter meter;
      at::scaled_dot_product_attention(q, gaps, v);
      CHECK(meter.peak() < 2 * item);  // with gaps between its numbers, the one item is copied
    }
    const MemoryMeter meter;
    const auto y = at::scaled_dot_product_attention(q, k, v);
    CHECK(meter.peak() < item);
    torch::autograd::grad({y}, {q, k, v}, {y.detach()});
    // The gradients themselves and, of a half type, their sums in float32, of two tensors.
    CHECK(meter.peak() < (type == at::kFloat ? 2 : 6) * item + item);
  }
}

TEST_CASE("accelerated bits do not depend on the number of threads", "[accelerate]") {
  const EverySizeGuard every_size;
  const SdpaGuard guard;
  at::manual_seed(6);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    auto call = random_call("causal", {.queries = 260, .keys = 260}, type);
    call.causal = true;
    call.dropout_p = 0.1;
    const auto one = [&] {
      const Threads threads(1);
      return run(call);
    }();
    for (const int count : {2, 3}) {
      const Threads threads(count);
      CHECK(same_bits(run(call), one));
    }
  }
}

TEST_CASE("accelerated dropout repeats with the seed and keeps the mean", "[accelerate]") {
  const EverySizeGuard every_size;
  const SdpaGuard guard;
  at::manual_seed(7);
  auto call = random_call("dropout");
  const auto without = sdpa(call);
  call.dropout_p = 0.25;
  CHECK(same_bits(run(call), run(call)));
  at::manual_seed(8);
  const auto first = sdpa(call);
  CHECK_FALSE(bit_equal(first, sdpa(call)));  // another key each time
  auto mean = at::zeros_like(without);
  constexpr int kDraws = 400;
  for (int n = 0; n < kDraws; ++n) mean += sdpa(call);
  CHECK(distance(mean / kDraws, without) < 0.15);
  CHECK(distance(first, without) > 0.3);

  // The sum of the output is linear in v, so its difference has no error but rounding.
  auto leaves = call;
  leaves.v = call.v.detach().clone().requires_grad_();
  at::manual_seed(9);
  sdpa(leaves).sum().backward();
  const auto direction = at::randn(call.v.sizes());
  auto moved = call;
  moved.v = call.v + direction;
  at::manual_seed(9);
  const auto far = sdpa(moved).sum().item<double>();
  at::manual_seed(9);
  const auto near = sdpa(call).sum().item<double>();
  const auto predicted = (leaves.v.grad() * direction).sum().item<double>();
  CHECK(std::abs(far - near - predicted) < 1e-2);
}

TEST_CASE("SdpaDropout::Exact leaves calls with dropout as they were", "[accelerate]") {
  const EverySizeGuard every_size;
  at::manual_seed(10);
  auto call = random_call("dropout");
  call.dropout_p = 0.25;
  const auto off = run(call);
  const SdpaGuard guard({.dropout = SdpaDropout::Exact});
  reset_sdpa_report();
  CHECK(same_bits(run(call), off));
  const auto report = sdpa_report();
  CHECK(report.taken == 0);
  REQUIRE(report.left.size() == 1);
  CHECK(report.left[0].reason == "dropout is left to PyTorch's random numbers (SdpaDropout::Exact)");
  call.dropout_p = 0.0;
  run(call);
  CHECK(taken() == 1);
}

TEST_CASE("accelerated inference mode comes through PyTorch's fused operator", "[accelerate]") {
  const EverySizeGuard every_size;
  at::manual_seed(12);
  for (const int64_t queries : {1, 33}) {
    const auto call = random_call("inference", {.queries = queries});
    const auto want = sdpa(cast(call, at::kDouble));
    const SdpaGuard guard;
    const c10::InferenceMode inference;
    reset_sdpa_report();
    auto inside = call;
    for (auto* x : {&inside.q, &inside.k, &inside.v}) *x = x->clone();
    CHECK(distance(sdpa(inside), want) < 2e-6);
    CHECK(distance(sdpa(call), want) < 2e-6);  // normal tensors
    CHECK(taken() == 2);
    CHECK(sdpa_report().left.empty());
  }
}

TEST_CASE("accelerated inference mode takes calls of rank 4 without dropout, and masks of rank 2 and 4",
          "[accelerate]") {
  const EverySizeGuard every_size;
  at::manual_seed(13);
  const auto plain = random_call("inference");
  const SdpaGuard guard;
  const auto takes = [](const SdpaCase& call) {
    const c10::InferenceMode inference;
    reset_sdpa_report();
    sdpa(call);
    return taken() == 1;
  };
  auto masked = plain;
  for (const auto& mask : {at::randn({33, 33}), at::randn({2, 4, 33, 33})}) {
    masked.mask = mask;
    CHECK(takes(masked));
  }
  masked.mask = at::randn({4, 33, 33});
  CHECK_FALSE(takes(masked));
  auto dropped = plain, flat = plain;
  dropped.dropout_p = 0.1;
  CHECK_FALSE(takes(dropped));
  for (auto* x : {&flat.q, &flat.k, &flat.v}) *x = x->flatten(0, 1);
  CHECK_FALSE(takes(flat));
}

TEST_CASE("numbers of a key that no query sees reach no accelerated result", "[accelerate]") {
  const EverySizeGuard every_size;
  const SdpaGuard guard;
  at::manual_seed(14);
  auto call = random_call("hidden");
  const auto keep = some_pairs(33, 33);
  keep.narrow(1, 20, 13).fill_(false);
  call.mask = keep;
  const auto clean = run(call);
  for (auto* x : {&call.k, &call.v}) {
    *x = x->clone();
    x->narrow(2, 20, 13).fill_(std::numeric_limits<double>::quiet_NaN());
  }
  const auto hidden = run(call);
  for (size_t n = 0; n < 4; ++n) CHECK(distance(hidden.tensors[n], clean.tensors[n]) == 0.0);
}

TEST_CASE("a mask may be an inference tensor, and a bool mask may change before the backward pass",
          "[accelerate]") {
  const EverySizeGuard every_size;
  at::manual_seed(13);
  auto call = random_call("mask");
  const auto keep = some_pairs(33, 33);
  call.mask = keep;
  const auto want = run(cast(call, at::kDouble));
  const SdpaGuard guard;
  {
    const c10::InferenceMode inference;
    call.mask = keep.clone();
  }
  CHECK(distance(run(call).tensors[1], want.tensors[1]) < 2e-6);
  call.mask = keep.clone();
  const auto q = call.q.clone().requires_grad_();
  call.q = q;
  const auto y = sdpa(call);
  call.mask.fill_(true);
  at::manual_seed(4);
  y.backward(at::randn(y.sizes()));
  CHECK(distance(q.grad(), want.tensors[1]) < 2e-6);
}
