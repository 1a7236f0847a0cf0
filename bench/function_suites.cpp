// The suites of the attention function on a CPU.

#include <limits>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn_like.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>

#include "suites.h"
#include "support/machine.h"
#include "support/memory.h"
#include "support/timing.h"

namespace bench {

// Only the attention function, forward.

namespace {

void add_forward(Runner& runner, const Shape& shape, bool causal, at::ScalarType type) {
  const attentive::AttentionOptions options{.causal = causal ? attentive::Causal::BottomRight
                                                             : attentive::Causal::None};
  Case c{"forward",
         fmt::format("{} B{} H{} T={} D{}", causal ? "causal" : "full", shape.B, shape.H,
                     token_count(shape.T), shape.D),
         type_name(type), limit_of(type), attention_flops(shape, causal)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, type);
  c.contenders.push_back(
      {"attentive", [=] { return Tensors{attentive::attention(x.q, x.k, x.v, options)}; }});
  c.contenders.push_back({"torch sdpa", [=] { return Tensors{sdpa(x, causal)}; }});
  if (shape.T <= 1024)
    c.contenders.push_back({"composed", [=] { return Tensors{composed(x, causal, 0.0)}; }});
  runner.run(c);
}

}  // namespace

void forward_suite(Runner& runner) {
  const at::NoGradGuard no_grad;
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    for (const int64_t T : {128, 256, 512, 1024, 2048, 4096}) add_forward(runner, {1, 12, T, 64}, true, type);
    add_forward(runner, {8, 12, 1024, 64}, true, type);
    for (const int64_t T : {1024, 4096}) add_forward(runner, {1, 12, T, 64}, false, type);
    for (const int64_t T : {1024, 4096}) add_forward(runner, {1, 8, T, 128}, true, type);
  }
}

// Only the attention function, forward and backward.

void forward_backward_suite(Runner& runner) {
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    for (const int64_t T : {256, 1024, 4096}) {
      const Shape shape{1, 12, T, 64};
      Case c{"forward-backward", fmt::format("causal B1 H12 T={} D64", token_count(T)), type_name(type),
             limit_of(type), kWithBackward * attention_flops(shape, true)};
      if (!runner.wants(c)) continue;
      const auto x = make_qkv(shape, type, /*gradients=*/true);
      const auto grad = at::randn_like(x.q);
      c.contenders.push_back({"attentive", with_backward(x, grad, [=] {
                                return attentive::attention(x.q, x.k, x.v,
                                                            {.causal = attentive::Causal::BottomRight});
                              })});
      c.contenders.push_back({"torch sdpa", with_backward(x, grad, [=] { return sdpa(x, true); })});
      if (T <= 1024)
        c.contenders.push_back({"composed", with_backward(x, grad, [=] { return composed(x, true, 0.0); })});
      runner.run(c);
    }
  }
}

// float16 beside float32, and beside PyTorch's function in float16.

namespace {

constexpr double kAllowed = 5e-3;  // a few roundings of float16

at::Tensor attend(const Qkv& x) {
  return attentive::attention(x.q, x.k, x.v, {.causal = attentive::Causal::BottomRight});
}

Qkv converted(const Qkv& x, at::ScalarType type) {
  const auto one = [&](const at::Tensor& t) { return t.detach().to(type).requires_grad_(t.requires_grad()); };
  return {one(x.q), one(x.k), one(x.v)};
}

// The attention function alone, forward or with its backward pass. The result is compared with that of the
// same numbers in float32.
void add_half(Runner& runner, int64_t T, bool backward) {
  const Shape shape{1, 12, T, 64};
  Case c{"half", fmt::format("{} causal B1 H12 T={} D64", backward ? "fwd+bwd" : "forward", token_count(T)),
         type_name(at::kHalf), limit_of(at::kHalf),
         (backward ? kWithBackward : 1.0) * attention_flops(shape, true)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, at::kHalf, backward), wide = converted(x, at::kFloat);
  const auto grad = at::randn_like(wide.q);
  const auto contender = [&](std::string name, const Qkv& in, at::Tensor (*attention)(const Qkv&)) {
    if (backward) {
      c.contenders.push_back(
          {std::move(name), with_backward(in, grad.to(in.q.scalar_type()), [=] { return attention(in); })});
    } else {
      c.contenders.push_back({std::move(name), [=] {
                                const at::NoGradGuard no_grad;
                                return Tensors{attention(in)};
                              }});
    }
  };
  contender("attentive", x, attend);
  contender("attentive, float32", wide, attend);
  contender("torch sdpa", x, [](const Qkv& in) { return sdpa(in, /*causal=*/true); });
  c.allowed = kAllowed;
  runner.run(c);
}

}  // namespace

void half_suite(Runner& runner) {
  if (!runner.wants(at::kHalf)) return;
  for (const bool backward : {false, true}) {
    for (const int64_t T : {1024, 4096}) add_half(runner, T, backward);
  }
}

// Forward and backward with dropout on the weights, for which PyTorch does not use its fused kernel.

Check same_drops(const Qkv& x, const at::Tensor& grad, double dropout_p) {
  const auto heads = [](const at::Tensor& t) { return t.detach().narrow(1, 0, 2).clone(); };
  Tensors results[2];
  for (const auto backend : {attentive::Backend::Native, attentive::Backend::Reference}) {
    Qkv two{heads(x.q).requires_grad_(), heads(x.k).requires_grad_(), heads(x.v).requires_grad_()};
    at::manual_seed(5);
    results[backend == attentive::Backend::Reference] = with_backward(two, heads(grad), [&] {
      return attentive::attention(two.q, two.k, two.v,
                                  {.causal = attentive::Causal::BottomRight,
                                   .dropout_p = dropout_p,
                                   .dropout_stream = attentive::DropoutStream::Counter,
                                   .backend = backend});
    })();
  }
  return {"composed definition, same drops", difference(results[0], results[1]),
          allowed_error(x.q.scalar_type())};
}

void dropout_suite(Runner& runner) {
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    for (const int64_t T : {256, 1024, 4096}) {
      const Shape shape{1, 12, T, 64};
      Case c{"dropout", fmt::format("fwd+bwd p=0.1 T={}", token_count(T)), type_name(type), limit_of(type),
             kWithBackward * attention_flops(shape, true)};
      if (!runner.wants(c)) continue;
      const auto x = make_qkv(shape, type, /*gradients=*/true);
      const auto grad = at::randn_like(x.q);
      c.check = [=] { return same_drops(x, grad, kDropout); };
      c.contenders.push_back({"attentive", with_backward(x, grad, [=] {
                                return attentive::attention(
                                    x.q, x.k, x.v,
                                    {.causal = attentive::Causal::BottomRight, .dropout_p = kDropout});
                              })});
      c.contenders.push_back({"torch sdpa", with_backward(x, grad, [=] { return sdpa(x, true, kDropout); })});
      if (T <= 1024)
        c.contenders.push_back(
            {"composed", with_backward(x, grad, [=] { return composed(x, true, kDropout); })});
      runner.run(c);
    }
  }
}

// A causal sliding window. PyTorch's function takes it as a T x T mask, with which it skips no work.

namespace {

attentive::AttentionOptions window_of(int64_t width) {
  return {.causal = attentive::Causal::BottomRight, .window = {width - 1, 0}};
}

at::Tensor band(int64_t tokens, int64_t width) {
  return hidden_by(tokens, width, at::kCPU).logical_not_();
}

// The first tokens of a long sequence do not depend on later ones, so they can be checked on a short
// sequence.
Check check_start(const Qkv& x, int64_t width) {
  const int64_t tokens = 4 * width;
  const auto start = [&](const at::Tensor& t) { return t.narrow(2, 0, tokens); };
  const auto package = start(attentive::attention(x.q, x.k, x.v, window_of(width)));
  const auto peer = at::scaled_dot_product_attention(start(x.q), start(x.k), start(x.v), band(tokens, width));
  return {"torch sdpa + mask on the start", difference({package}, {peer}), 1e-4};
}

void against_mask(Runner& runner, int64_t T, int64_t width, at::ScalarType type) {
  const Shape shape{1, 12, T, 64};
  Case c{"window", fmt::format("W={} T={}", width, token_count(T)), type_name(type), limit_of(type),
         window_flops(shape, width)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, type);
  const auto mask = band(T, width);
  c.contenders.push_back(
      {"attentive", [=] { return Tensors{attentive::attention(x.q, x.k, x.v, window_of(width))}; }});
  c.contenders.push_back(
      {"torch sdpa + mask", [=] { return Tensors{at::scaled_dot_product_attention(x.q, x.k, x.v, mask)}; }});
  runner.run(c);
}

// Shows that the time is linear in T: the same window on ever longer sequences, for which no peer is
// feasible.
void growing(Runner& runner, int64_t T, int64_t width) {
  const Shape shape{1, 12, T, 64};
  Case c{"window", fmt::format("W={} T={}", width, token_count(T)), "fp32", Limit::Fp32,
         window_flops(shape, width)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, at::kFloat);
  c.check = [=] { return check_start(x, width); };
  c.contenders.push_back(
      {"attentive", [=] { return Tensors{attentive::attention(x.q, x.k, x.v, window_of(width))}; }});
  runner.run(c);
}

}  // namespace

void window_suite(Runner& runner) {
  const at::NoGradGuard no_grad;
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    against_mask(runner, 1024, 256, type);
    against_mask(runner, 4096, 256, type);
    against_mask(runner, 4096, 1024, type);
  }
  if (!runner.wants(at::kFloat)) return;
  for (const int64_t T : {16384, 65536}) growing(runner, T, 256);
}

// Softcap and ALiBi; in PyTorch, these need single operations or a floating-point T x T mask.

namespace {

at::Tensor composed_softcap(const Qkv& x) {
  return composed(x, {.hidden = hidden_by(x.q.size(-2), {}, at::kCPU), .softcap = kSoftcap});
}

// (H, T, T): -slope * distance below the diagonal, -inf above.
at::Tensor alibi_mask(const at::Tensor& slopes, int64_t T, at::ScalarType type) {
  const auto hidden = hidden_by(T, {}, at::kCPU);
  return alibi_bias(slopes, T).masked_fill_(hidden, -std::numeric_limits<double>::infinity()).to(type);
}

void softcap(Runner& runner, const Shape& shape, at::ScalarType type, bool gradients) {
  const attentive::AttentionOptions options{.causal = attentive::Causal::BottomRight, .softcap = kSoftcap};
  Case c{"variants", fmt::format("softcap {} T={}", gradients ? "fwd+bwd" : "fwd", token_count(shape.T)),
         type_name(type), limit_of(type), attention_flops(shape, true) * (gradients ? kWithBackward : 1)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, type, gradients);
  const auto grad = at::randn_like(x.q);
  const auto package = [=] { return attentive::attention(x.q, x.k, x.v, options); };
  const auto peer = [=] { return composed_softcap(x); };
  if (gradients) {
    c.contenders = {{"attentive", with_backward(x, grad, package)},
                    {"composed", with_backward(x, grad, peer)}};
  } else {
    c.contenders = {{"attentive", [=] { return Tensors{package()}; }},
                    {"composed", [=] { return Tensors{peer()}; }}};
  }
  runner.run(c);
}

void alibi(Runner& runner, const Shape& shape, at::ScalarType type, bool gradients) {
  Case c{"variants", fmt::format("ALiBi {} T={}", gradients ? "fwd+bwd" : "fwd", token_count(shape.T)),
         type_name(type), limit_of(type), attention_flops(shape, true) * (gradients ? kWithBackward : 1)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, type, gradients);
  const auto grad = at::randn_like(x.q);
  const auto slopes = attentive::alibi_slopes(shape.H);
  const auto mask = alibi_mask(slopes, shape.T, type);
  const auto package = [=] {
    return attentive::attention(x.q, x.k, x.v, {.causal = attentive::Causal::BottomRight},
                                attentive::AttentionExtras{.alibi_slopes = slopes})
        .output;
  };
  const auto peer = [=] { return at::scaled_dot_product_attention(x.q, x.k, x.v, mask); };
  // The peer rounds its mask to bf16, with errors of up to 2 at a distance of 1000.
  if (type == at::kBFloat16) {
    c.check = [=] {
      const auto exact =
          at::scaled_dot_product_attention(x.q.to(at::kFloat), x.k.to(at::kFloat), x.v.to(at::kFloat),
                                           alibi_mask(slopes, shape.T, at::kFloat));
      return Check{"torch sdpa + mask in fp32", difference({package()}, {exact}), 3e-2};
    };
  }
  if (gradients) {
    c.contenders = {{"attentive", with_backward(x, grad, package)},
                    {"torch sdpa + mask", with_backward(x, grad, peer)}};
  } else {
    c.contenders = {{"attentive", [=] { return Tensors{package()}; }},
                    {"torch sdpa + mask", [=] { return Tensors{peer()}; }}};
  }
  runner.run(c);
}

}  // namespace

void variants_suite(Runner& runner) {
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    for (const int64_t T : {1024, 4096}) {
      for (const bool gradients : {false, true}) {
        if (gradients && (T > 1024 || type == at::kBFloat16)) continue;
        softcap(runner, {1, 12, T, 64}, type, gradients);
        alibi(runner, {1, 12, T, 64}, type, gradients);
      }
    }
  }
}

// One new query against a long cache, with 32 query heads, 8 key heads and head_dim 128.

namespace {

constexpr int64_t kDecodeHeads = 32, kDecodeKeyHeads = 8, kDim = 128;

// Stacks the query heads of a group as rows of one head, so that ATen reads each key once per group.
at::Tensor stacked(const Qkv& x) {
  const auto rows = x.q.view({1, kDecodeKeyHeads, kDecodeHeads / kDecodeKeyHeads, kDim});
  return at::scaled_dot_product_attention(rows, x.k, x.v).view({1, kDecodeHeads, 1, kDim});
}

at::Tensor read_plainly(const Qkv& x) {
  double sum = 0;
  for (const auto* t : {&x.k, &x.v}) {
    sum += read_all(static_cast<const float*>(t->const_data_ptr()),
                    static_cast<long>(t->nbytes() / sizeof(float)));
  }
  return at::scalar_tensor(sum);
}

void add_decode(Runner& runner, int64_t keys, at::ScalarType type) {
  Case c{
      "decode", fmt::format("32/8 heads, {} keys", token_count(keys)), type_name(type), Limit::Read,
      static_cast<double>(2 * kDecodeKeyHeads * keys * kDim) * static_cast<double>(c10::elementSize(type))};
  if (!runner.wants(c)) return;
  at::manual_seed(7);
  const Qkv x{at::randn({1, kDecodeHeads, 1, kDim}).to(type),
              at::randn({1, kDecodeKeyHeads, keys, kDim}).to(type),
              at::randn({1, kDecodeKeyHeads, keys, kDim}).to(type)};
  c.contenders = {
      {"attentive",
       [=] {
         return Tensors{attentive::attention(x.q, x.k, x.v, {.causal = attentive::Causal::BottomRight})};
       }},
      {"torch sdpa enable_gqa",
       [=] { return Tensors{at::scaled_dot_product_attention(x.q, x.k, x.v, {}, 0.0, false, {}, true)}; }},
      {"torch sdpa, stacked heads", [=] { return Tensors{stacked(x)}; }},
      {"plain read of K and V", [=] { return Tensors{read_plainly(x)}; }}};
  runner.run(c);
}

}  // namespace

void decode_suite(Runner& runner) {
  const at::NoGradGuard no_grad;
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    for (const int64_t keys : {1024, 8192, 32768}) add_decode(runner, keys, type);
  }
}

// Compares one thread with all threads, and checks that their number does not change the bits of a result.

namespace {

bool equal(const Tensors& a, const Tensors& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i) same = at::equal(a[i], b[i]);
  return same;
}

void add_thread_counts(Runner& runner, const Shape& shape, at::ScalarType type, bool gradients) {
  const int all = runner.settings().threads;
  Case c{"threads",
         fmt::format("{} B1 H{} T={}", gradients ? "fwd+bwd" : "fwd", shape.H, token_count(shape.T)),
         type_name(type), limit_of(type), attention_flops(shape, true) * (gradients ? kWithBackward : 1)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, type, gradients);
  const auto grad = at::randn_like(x.q);
  const auto package = [=] {
    return attentive::attention(x.q, x.k, x.v, {.causal = attentive::Causal::BottomRight});
  };
  const auto peer = [=] { return sdpa(x, true); };
  const auto task = [&](std::function<at::Tensor()> forward) -> std::function<Tensors()> {
    if (gradients) return with_backward(x, grad, std::move(forward));
    return [forward = std::move(forward)] { return Tensors{forward()}; };
  };
  const auto with_threads = [](int threads, std::function<Tensors()> run) {
    return [=] {
      const ThreadCount count(threads);
      return run();
    };
  };
  for (const int threads : {all, 1}) {
    c.contenders.push_back(
        {fmt::format("attentive, {} threads", threads), with_threads(threads, task(package))});
  }
  for (const int threads : {all, 1}) {
    c.contenders.push_back(
        {fmt::format("torch sdpa, {} threads", threads), with_threads(threads, task(peer))});
  }
  const auto many = c.contenders[0].run, one = c.contenders[1].run;
  c.check = [=] { return Check{"one thread, bit by bit", equal(many(), one()) ? 0.0 : 1.0, 0.0}; };
  runner.run(c);
}

}  // namespace

void threads_suite(Runner& runner) {
  if (runner.settings().threads == 1) {
    fmt::print("skipped: it compares one thread with several, and --threads is 1\n");
    return;
  }
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    add_thread_counts(runner, {1, 12, 1024, 64}, type, false);
    add_thread_counts(runner, {1, 12, 1024, 64}, type, true);
    add_thread_counts(runner, {1, 1, 4096, 64}, type, true);  // fewer heads than threads
  }
}

// Time and memory of one causal forward pass against T.

namespace {

constexpr int64_t kComposedUpTo = 4096;  // 3 GiB of scores and weights there, 48 GiB at 16k

double median_seconds(const std::function<Tensors()>& run, double budget) {
  std::vector<double> samples;
  const Timer all;
  do {
    const Timer timer;
    run();
    samples.push_back(timer.seconds());
  } while (samples.size() < 200 && all.seconds() < budget);
  return spread_of(samples).median;
}

}  // namespace

void growth_suite(Runner& runner) {
  if (!runner.wants(at::kFloat)) return;
  const at::NoGradGuard no_grad;
  const attentive::AttentionOptions causal{.causal = attentive::Causal::BottomRight};
  attentive::AttentionOptions window = causal;
  window.window = {kWindow - 1, 0};
  for (int64_t T = 256; T <= 16384; T *= 2) {
    if (!runner.wants(Case{"growth", "T=" + token_count(T), "fp32"})) continue;
    const auto x = make_qkv({1, 12, T, 64}, at::kFloat);
    std::vector<Contender> ways = {
        {"attentive", [=] { return Tensors{attentive::attention(x.q, x.k, x.v, causal)}; }},
        {"attentive, window 256", [=] { return Tensors{attentive::attention(x.q, x.k, x.v, window)}; }},
        {"torch sdpa", [=] { return Tensors{sdpa(x, true)}; }}};
    if (T <= kComposedUpTo) ways.push_back({"composed", [=] { return Tensors{composed(x, true, 0.0)}; }});
    const double error = difference(ways[0].run(), ways[2].run());
    if (!(error <= 1e-4)) throw std::runtime_error("growth: wrong result, not timed");
    for (const auto& way : ways) {
      const double bytes = peak_growth([&] { way.run(); });
      runner.add({way.name, T, median_seconds(way.run, runner.settings().budget / 4), bytes});
    }
  }
}

}  // namespace bench
