// Only the attention function, forward and backward.

#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn_like.h>
#include <fmt/format.h>

#include <attentive/functional/attention.h>

#include "inputs.h"
#include "suites.h"

namespace bench {

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

}  // namespace bench
