#include <cmath>

#include <ATen/core/grad_mode.h>

#include <attentive/functional/gated_delta_rule.h>

#include "core/autocast_modes.h"
#include "core/check.h"
#include "functional/gated_delta_rule_check.h"

namespace attentive {
namespace {

void check_shape(const char* caller, const char* name, const char* shape, const at::Tensor& x,
                 at::IntArrayRef expected) {
  TORCH_CHECK_VALUE(x.sizes() == expected, caller, ": expected ", name, " ", shape, " of shape ",
                    shape_string(expected), ", got ", shape_string(x.sizes()));
}

// The offsets of packed sequences, of T tokens in all.
std::vector<int64_t> read_offsets(const char* caller, const at::Tensor& offsets, const at::Tensor& v) {
  const auto* name = "sequence_offsets";
  check_defined(caller, name, offsets);
  TORCH_CHECK_TYPE(offsets.scalar_type() == at::kLong, caller, ": expected ", name, " of dtype Long, got ",
                   describe(offsets));
  TORCH_CHECK_VALUE(offsets.dim() == 1 && offsets.size(0) >= 1, caller, ": expected ", name,
                    " of shape (N + 1,), got ", shape_string(offsets.sizes()));
  TORCH_CHECK_VALUE(offsets.is_cpu(), caller, ": expected ", name, " on the CPU, got it on ",
                    offsets.device());
  TORCH_CHECK_VALUE(v.size(0) == 1, caller, ": expected one row of packed sequences with ", name,
                    ", got a batch of ", v.size(0));
  const auto numbers = offsets.contiguous();
  const auto* const first = numbers.const_data_ptr<int64_t>();
  std::vector<int64_t> result(first, first + numbers.numel());
  TORCH_CHECK_VALUE(result.front() == 0, caller, ": expected ", name, " to start at 0, got ", result.front());
  for (size_t n = 1; n < result.size(); ++n) {
    TORCH_CHECK_VALUE(result[n] >= result[n - 1], caller, ": expected ", name, " never to decrease, got ",
                      result[n - 1], " before ", result[n]);
  }
  TORCH_CHECK_VALUE(result.back() == v.size(2), caller, ": expected ", name, " to end at ", v.size(2),
                    " (the packed tokens), got ", result.back());
  return result;
}

}  // namespace

kernels::DeltaRule checked_delta_rule(const char* caller, kernels::DeltaTensors& x,
                                      const GatedDeltaRuleCall& call) {
  check_floating(caller, "q", x.q);
  check_floating(caller, "k", x.k);
  check_floating(caller, "v", x.v);
  for (auto* some : {&x.q, &x.k, &x.v}) *some = some->to(autocast_type(some->scalar_type(), some->device()));
  const auto &q = x.q, &k = x.k, &v = x.v, &gate = x.gate, &beta = x.beta, &state = x.state;
  TORCH_CHECK_VALUE(q.dim() == 4 && q.size(1) > 0 && q.size(3) > 0, caller,
                    ": expected q of shape (B, Hk, T, Dk), got ", shape_string(q.sizes()));
  check_shape(caller, "k", "like q", k, q.sizes());
  TORCH_CHECK_VALUE(v.dim() == 4 && v.size(0) == q.size(0) && v.size(2) == q.size(2), caller,
                    ": expected v of shape (", q.size(0), ", Hv, ", q.size(2), ", Dv), got ",
                    shape_string(v.sizes()));
  TORCH_CHECK_VALUE(v.size(1) % q.size(1) == 0, caller, ": expected a multiple of the ", q.size(1),
                    " heads of q as heads of v, got ", v.size(1));
  const auto check_beside_v = [&](const char* name, const at::Tensor& some, at::ScalarType type,
                                  const char* others, bool like_v) {
    check_floating(caller, name, some);
    TORCH_CHECK_VALUE(some.device() == v.device(), caller, ": expected ", name, " on ", v.device(),
                      " like v, got it on ", some.device());
    TORCH_CHECK_TYPE(some.scalar_type() == type || (like_v && some.scalar_type() == v.scalar_type()), caller,
                     ": expected ", name, " of dtype ", type, others, ", got ", some.scalar_type());
  };
  check_beside_v("q", q, v.scalar_type(), " like v", true);
  check_beside_v("k", k, v.scalar_type(), " like v", true);
  const auto of_tokens = v.sizes().slice(0, 3);
  if (gate.defined()) {
    check_beside_v("gate", gate, x.sums(), " or that of v", true);
    const bool by_channel =
        gate.dim() == 4 && gate.size(3) == q.size(3) && gate.sizes().slice(0, 3) == of_tokens;
    TORCH_CHECK_VALUE(by_channel || gate.sizes() == of_tokens, caller, ": expected gate of shape ",
                      shape_string(of_tokens), ", or with ", q.size(3), " channels, got ",
                      shape_string(gate.sizes()));
  }
  if (beta.defined()) {
    check_beside_v("beta", beta, x.sums(), " or that of v", true);
    check_shape(caller, "beta", "as a number per token", beta, of_tokens);
  }
  kernels::DeltaRule rule{.scale = call.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3)))),
                          .normalize_eps = call.normalize_eps,
                          .delta = call.delta,
                          .offsets = {}};
  TORCH_CHECK_VALUE(std::isfinite(rule.scale), caller, ": expected scale to be finite, got ", rule.scale);
  TORCH_CHECK_VALUE(!rule.normalize_eps || (std::isfinite(*rule.normalize_eps) && *rule.normalize_eps >= 0.0),
                    caller, ": expected normalize_eps to be finite and not negative, got ",
                    rule.normalize_eps.value_or(0.0));
  if (call.sequence_offsets.defined()) rule.offsets = read_offsets(caller, call.sequence_offsets, v);
  if (state.defined()) {
    check_beside_v("state", state, x.sums(), "", false);
    check_shape(caller, "state", "as a matrix per head", state,
                {rule.sequences(v.size(0)), v.size(1), q.size(3), v.size(3)});
  }
  return rule;
}

GatedDeltaRuleResult gated_delta_rule(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& gate, const at::Tensor& beta,
                                      const GatedDeltaRuleCall& call, const at::Tensor& state) {
  kernels::DeltaTensors x{q, k, v, gate, beta, state};
  const auto rule = checked_delta_rule("gated_delta_rule", x, call);
  auto [output, last] = kernels::delta_rule(rule, x);
  return {std::move(output), std::move(last)};
}

at::Tensor gated_delta_rule_(at::Tensor& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& gate, const at::Tensor& beta, const GatedDeltaRuleCall& call) {
  constexpr const char* kCaller = "gated_delta_rule_";
  check_defined(kCaller, "state", state);
  kernels::DeltaTensors x{q, k, v, gate, beta, state};
  const auto rule = checked_delta_rule(kCaller, x, call);
  TORCH_CHECK_VALUE(state.is_contiguous(), kCaller, ": expected state to be contiguous, got strides ",
                    state.strides());
  const at::NoGradGuard no_grad;
  state.unsafeGetTensorImpl()->bump_version();  // first, since it may refuse; an operator's copy_ counts none
  return kernels::delta_rule_in_place(rule, x);
}

}  // namespace attentive
