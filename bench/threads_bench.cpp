// Compares one thread with all threads, and checks that their number does not change the bits of a result.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <attentive/functional/attention.h>

#include "inputs.h"
#include "suites.h"
#include "support/threads.h"

namespace bench {
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

}  // namespace bench
