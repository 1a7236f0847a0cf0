// Softcap and ALiBi; in PyTorch, these need single operations or a floating-point T x T mask.

#include <limits>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <attentive/functional/attention.h>

#include "inputs.h"
#include "suites.h"

namespace bench {
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

}  // namespace bench
