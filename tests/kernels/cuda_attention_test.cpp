// attention() on a GPU against the float64 reference on the CPU. The row kernels themselves are tested
// without a GPU in masked_softmax_test.cpp; only the launch, the choice of a backend and the streams need a
// device.

#include <algorithm>
#include <limits>

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>

#include "functional/problem_builder.h"
#include "kernels/native_cuda/backend.h"
#include "kernels/native_cuda/masked_softmax.h"
#include "support/compare.h"
#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;
using torch::autograd::grad;

namespace {

at::Tensor there(const at::Tensor& x) {
  if (!x.defined()) return x;
  return x.detach().to(at::kCUDA).requires_grad_(x.requires_grad());
}

OptionCall on_cuda(const OptionCall& call) {
  OptionCall result = call;
  for (auto* x : {&result.q, &result.k, &result.v, &result.extras.alibi_slopes, &result.extras.sinks})
    *x = there(*x);
  Mask mask;
  for (const auto& term : call.extras.mask.keep_terms()) mask &= Mask::keep(there(term));
  for (const auto& term : call.extras.mask.key_keep_terms()) mask &= Mask::key_keep(there(term));
  for (const auto& term : call.extras.mask.key_length_terms()) mask &= Mask::key_lengths(there(term));
  for (const auto& term : call.extras.mask.query_length_terms()) mask &= Mask::query_lengths(there(term));
  for (const auto& term : call.extras.mask.bias_terms()) mask &= Mask::bias(there(term));
  result.extras.mask = mask;
  for (auto& x : result.captured) x = there(x);
  for (const auto& define : result.functions) define(result);
  return result;
}

void check_on_cuda(const OptionCall& exact, at::ScalarType type, Backend backend) {
  INFO("dtype " << c10::toString(type) << ", backend " << to_string(backend));
  const auto call = cast(exact, type);
  // Only the Counter stream draws equal numbers on every device.
  if (call.options.dropout_p > 0 && call.options.dropout_stream != DropoutStream::Counter) return;
  const auto got = run_on(on_cuda(call), backend);
  if (got.refused) {
    CHECK_FALSE(got.reason.empty());
    CHECK(backend != Backend::Reference);
    return;
  }
  CHECK(got.result.output.is_cuda());
  check_result(got, expected_of(call), type);
}

OptionCall kernel_arguments(int64_t L, int64_t S) {
  at::manual_seed(5);
  OptionCall call;
  call.q = at::randn({2, 4, L, 64}, at::kDouble);
  call.k = at::randn({2, 2, S, 64}, at::kDouble);
  call.v = at::randn({2, 2, S, 64}, at::kDouble);
  return call;
}

Backend chosen(const OptionCall& call) {
  return explain(call.q, call.k, call.v, call.options, call.extras).chosen;
}

}  // namespace

TEST_CASE("on CUDA every option on every backend equals the CPU's reference", "[cuda_attention][cuda]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  const auto& cases = option_cases();
  const auto n = GENERATE_COPY(range(size_t{0}, cases.size()));
  INFO("option: " << cases[n].name);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto backend : {Backend::Auto, Backend::Native, Backend::Torch, Backend::Reference}) {
      auto call = plain_call();
      cases[n].apply(call);
      check_on_cuda(call, type, backend);
    }
  }
}

// The kernels of PyTorch read 16 bytes at a time.
TEST_CASE("on CUDA every head_dim and any strides equal the CPU's reference", "[cuda_attention][cuda]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  const int64_t D = GENERATE(1, 2, 3, 4, 5, 8, 12, 20, 24, 36, 64, 72, 128, 132, 256, 264, 300);
  INFO("head_dim " << D);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t gap : {0, 1, 2, 4, 8}) {  // numbers between rows, and before the first
      INFO("gap " << gap);
      at::manual_seed(6);
      auto exact = OptionCall{};
      for (auto* x : {&exact.q, &exact.k, &exact.v}) *x = at::randn({2, 3, 9, D}, at::kDouble);
      exact.options.causal = Causal::TopLeft;
      const auto call = cast(exact, type);
      auto spaced = on_cuda(call);
      for (auto* x : {&spaced.q, &spaced.k, &spaced.v}) {
        const auto wide = at::empty({2, 9, 3, D + gap}, x->options());
        *x = wide.slice(3, gap).transpose(1, 2).copy_(x->detach()).requires_grad_(true);
      }
      for (const auto backend : {Backend::Auto, Backend::Torch}) {
        INFO("dtype " << c10::toString(type) << ", backend " << to_string(backend));
        const auto got = run_on(spaced, backend);
        if (!got.refused) check_result(got, expected_of(call), type);
        CHECK(got.refused == (backend == Backend::Torch && D * (type == at::kFloat ? 4 : 2) % 16 != 0));
      }
    }
  }
}

// cuDNN's attention, which PyTorch prefers on some GPUs, once had wrong results at lengths of 64 modulo 128.
// It compiles something for every shape, which takes longer than the call.
TEST_CASE("on CUDA half types of every length equal the CPU's reference", "[cuda_attention][cuda]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  const int64_t L = GENERATE(1, 2, 64, 65, 192), more = GENERATE(0, 64);  // further keys
  const int64_t D = GENERATE(8, 64, 128);
  const auto causal = GENERATE(Causal::None, Causal::TopLeft, Causal::BottomRight);
  const int64_t kv_heads = D == 64 && L != 2 ? 1 : 2;
  INFO(L << " queries, " << L + more << " keys, head_dim " << D << ", causal " << static_cast<int>(causal)
         << ", key heads " << kv_heads);
  at::manual_seed(7);
  OptionCall exact;
  exact.q = at::randn({2, 2, L, D}, at::kDouble);
  exact.k = at::randn({2, kv_heads, L + more, D}, at::kDouble);
  exact.v = at::randn({2, kv_heads, L + more, D}, at::kDouble);
  exact.options.causal = causal;
  check_on_cuda(exact, more == 0 ? at::kBFloat16 : at::kHalf, Backend::Torch);
}

TEST_CASE("on CUDA every function of a pair equals the CPU's reference", "[cuda_attention][cuda]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  const auto& cases = function_cases();
  const auto n = GENERATE_COPY(range(size_t{0}, cases.size()));
  INFO("function: " << cases[n].name);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto backend : {Backend::Auto, Backend::Native, Backend::Torch, Backend::Reference}) {
      auto call = plain_call();
      cases[n].apply(call);
      call.options.causal = Causal::BottomRight;
      check_on_cuda(call, type, backend);
    }
  }
}

TEST_CASE("on CUDA gradients are differentiated again as on the CPU", "[cuda_attention][cuda]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  const auto& cases = option_cases();
  const auto n = GENERATE_COPY(range(size_t{0}, cases.size()));
  INFO("option: " << cases[n].name);
  auto exact = plain_call();
  cases[n].apply(exact);
  // Only the Counter stream draws equal numbers on every device.
  if (exact.options.dropout_p > 0 && exact.options.dropout_stream != DropoutStream::Counter) return;
  const auto second = [](OptionCall call) {
    call.options.backend = Backend::Reference;
    at::manual_seed(23);
    const auto y = attention(call.q, call.k, call.v, call.options, call.extras).output;
    const auto leaves = leaves_of(call);
    at::Tensor sum = at::zeros({}, y.options());
    for (const auto& x : grad({y.square().sum()}, leaves, {}, true, /*create_graph=*/true, true)) {
      if (x.defined()) sum = sum + x.sin().sum();
    }
    return grad({sum}, leaves, {}, false, false, /*allow_unused=*/true);
  };
  const auto got = second(on_cuda(cast(exact, at::kFloat))), want = second(cast(exact, at::kDouble));
  REQUIRE(got.size() == want.size());
  double largest = 0.0;
  for (const auto& x : want) {
    if (x.defined() && x.numel() > 0) largest = std::max(largest, x.abs().max().item<double>());
  }
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("leaf " << i);
    REQUIRE(got[i].defined() == want[i].defined());
    if (want[i].defined()) CHECK(difference(got[i].cpu(), want[i], {0.0, 1e-5 * largest}) == "");
  }
}

TEST_CASE("on CUDA rows of every length equal the CPU's reference", "[cuda_attention][cuda]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  const int64_t S = GENERATE(1, 3, 31, 32, 33, 127, 128, 129, 512, 513, 1025, 4097, 16384, 17000);
  INFO("keys " << S);
  auto call = kernel_arguments(3, S);
  call.options.causal = Causal::BottomRight;
  call.options.softcap = 20.0;
  call.options.dropout_p = 0.2;
  call.options.dropout_stream = DropoutStream::Counter;
  call.extras.weights = Weights::Dropped;
  call.extras.logsumexp = true;
  check_on_cuda(call, at::kFloat, Backend::Native);
}

TEST_CASE("on CUDA the Counter stream drops the very weights it drops on the CPU", "[cuda_attention][cuda]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  auto call = cast(kernel_arguments(65, 700), at::kFloat);
  call.options.dropout_p = 0.5;
  call.options.dropout_stream = DropoutStream::Counter;
  call.extras.weights = Weights::Dropped;
  const auto here = run_on(call, Backend::Reference).result.weights.eq(0);
  for (const auto backend : {Backend::Native, Backend::Reference}) {
    INFO("backend " << to_string(backend));
    CHECK(at::equal(run_on(on_cuda(call), backend).result.weights.eq(0).cpu(), here));
  }
}

TEST_CASE("on CUDA NaN behind a mask reaches nothing", "[cuda_attention][cuda][nan]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  const auto backend = GENERATE(Backend::Auto, Backend::Native, Backend::Reference);
  INFO("backend " << to_string(backend));
  auto call = cast(kernel_arguments(6, 40), at::kFloat);
  call.extras.mask = at::arange(40).lt(33).unsqueeze(0).expand({6, 40});
  const auto clean = run_on(on_cuda(call), backend);
  {
    const at::NoGradGuard no_grad;
    for (auto* x : {&call.k, &call.v}) x->slice(2, 33, 40).fill_(std::numeric_limits<double>::quiet_NaN());
  }
  const auto poisoned = run_on(on_cuda(call), backend);
  CHECK(bit_equal(clean.result.output.cpu(), poisoned.result.output.cpu()));
  for (size_t n = 0; n < clean.gradients.size(); ++n)
    CHECK(bit_equal(clean.gradients[n].cpu(), poisoned.gradients[n].cpu()));
}

TEST_CASE("on CUDA a call takes PyTorch's kernel, then ours, then the reference", "[cuda_attention][cuda]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  const bool has_cuda_kernels = kernels::native_cuda::device_kernels() != nullptr;
  const auto fallback = has_cuda_kernels ? Backend::Native : Backend::Reference;
  const auto plain = on_cuda(cast(kernel_arguments(64, 64), at::kBFloat16));
  CHECK(chosen(plain) == Backend::Torch);
  auto windowed = plain;
  windowed.options.causal = Causal::BottomRight;
  windowed.options.window = {15, 0};
  CHECK(chosen(windowed) == Backend::Torch);
  auto capped = plain;
  capped.options.softcap = 30.0;
  CHECK(chosen(capped) == fallback);
  auto counted = plain;
  counted.options.dropout_p = 0.1;
  counted.options.dropout_stream = DropoutStream::Counter;
  CHECK(chosen(counted) == fallback);
  auto seen = plain;
  seen.extras.weights = Weights::Clean;
  CHECK(chosen(seen) == fallback);
  CHECK(chosen(on_cuda(cast(kernel_arguments(64, 64), at::kDouble))) == Backend::Reference);
}

// The refusals do not depend on a device.
TEST_CASE("the fused softmax says what it does not take", "[cuda_attention]") {
  const auto reason = [](const OptionCall& call) {
    return kernels::native_cuda::verdict(
               normalize("attention", call.q, call.k, call.v, call.options, call.extras).problem)
        .reason;
  };
  const auto call = cast(kernel_arguments(3, 5), at::kFloat);
  if (!kernels::native_cuda::device_kernels()) {
    CHECK(reason(call) == "this build has no CUDA code (ATTENTIVE_CUDA)");
    return;
  }
  CHECK(reason(call) == "");
  CHECK(reason(cast(call, at::kDouble)) == "it accepts only float32, bfloat16 and float16");
  auto drawn = call;
  drawn.options.dropout_p = 0.5;
  drawn.options.dropout_stream = DropoutStream::Aten;
  CHECK(reason(drawn) == "the Aten dropout stream cannot be drawn row by row");
  drawn.options.dropout_stream = DropoutStream::Counter;
  CHECK(reason(drawn) == "");
  drawn.options.dropout_p = 1.0;
  CHECK(reason(drawn) == "a dropout of 1 leaves nothing to compute");
  auto sloped = call;
  sloped.extras.alibi_slopes = at::randn({4}).requires_grad_(true);
  CHECK(reason(sloped) == "it computes no gradient for the ALiBi slopes");
}
