// Forward and backward with dropout on the weights, for which PyTorch does not use its fused kernel.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <attentive/functional/attention.h>

#include "inputs.h"
#include "suites.h"

namespace bench {
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

}  // namespace bench
