#include <array>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_native.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward_native.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "accelerate/sdpa_call.h"
#include "core/check.h"
#include "functional/mask_check.h"
#include "kernels/dropout_counter.h"
#include "kernels/native_cpu/backend.h"
#include "kernels/pytorch/aten_internals.h"
#include "kernels/reference/backend.h"

namespace attentive::accelerate {
namespace {

namespace native_cpu = kernels::native_cpu;
using at::Tensor;
using kernels::Problem;
using OptionalTensor = std::optional<Tensor>;
using Scale = std::optional<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_on() {
  return sdpa_switch().load(std::memory_order_relaxed) != Switch::Off;
}

// The output as PyTorch promises it: with the strides of q if it has q's shape, and contiguous otherwise.
Tensor output_for(const Problem& problem) {
  if (problem.value_dim() == problem.head_dim() && problem.q.stride(3) == 1) {
    auto output = at::empty_like(problem.q);
    if (output.stride(3) == 1) return output;
  }
  return at::empty({problem.batch(), problem.heads(), problem.queries(), problem.value_dim()},
                   problem.q.options());
}

native_cpu::Computed forward(const Problem& problem, uint64_t key, const native_cpu::Results& wanted) {
  const native_cpu::PreparedCall prepared(problem, key);
  return native_cpu::compute(prepared.call, prepared.tensors, wanted, output_for(problem));
}

kernels::Gradients backward(const Problem& problem, uint64_t key, const Tensor& grad_output,
                            const native_cpu::Computed& computed, bool want_bias) {
  const native_cpu::PreparedCall prepared(problem, key);
  native_cpu::Wanted wanted;
  if (want_bias) wanted.want_bias(problem.bias, problem.q.scalar_type());
  wanted.shared_k = problem.k.size(0) < problem.batch();
  wanted.shared_v = problem.v.size(0) < problem.batch();
  native_cpu::Incoming incoming;
  incoming.output = kernels::with_unit_stride(grad_output);
  return native_cpu::compute_gradients(prepared.call, prepared.tensors, computed, incoming, wanted);
}

// Returns (B, H, …) that lies in memory as (B, …, H), as PyTorch's kernel returns everything but the output.
// Compiled graphs rely on it.
Tensor lying_by_token(const Tensor& x) {
  return x.transpose(1, 2).contiguous().transpose(1, 2);
}

// ---- The fused CPU operator. Eager programs come to it in inference mode, compiled graphs always.

Decision asked_of_flash(const SdpaCall& call, bool differentiated) {
  return is_on() && !kernels::aten::in_flash_cpu() ? decide_flash(call, differentiated) : Decision::left({});
}

std::tuple<Tensor, Tensor> flash(const Tensor& q, const Tensor& k, const Tensor& v, double dropout_p,
                                 bool causal, const OptionalTensor& mask, Scale scale) {
  const SdpaCall call{q, k, v, mask, dropout_p, causal, scale};
  const auto decision = asked_of_flash(call, is_differentiated(call));
  if (!decision.problem) {
    if (!decision.reason.empty()) count_left(decision.reason);
    return at::native::_scaled_dot_product_flash_attention_cpu(q, k, v, dropout_p, causal, mask, scale);
  }
  count_taken();
  const auto computed = forward(*decision.problem, 0, {.logsumexp = true});
  // PyTorch's backward pass expects 0 for a row without keys. It follows if acceleration stops in between.
  computed.logsumexp.masked_fill_(computed.logsumexp.eq(-kInfinity), 0.0);
  return {computed.output, lying_by_token(computed.logsumexp)};
}

// The statistics of rows that are known by their logsumexp. In a row without keys, no weight is read.
Tensor statistics_of(const Tensor& logsumexp) {
  const auto statistics =
      at::zeros({2, logsumexp.size(0), logsumexp.size(1), logsumexp.size(2)}, logsumexp.options());
  statistics.select(0, 1).copy_(logsumexp);
  return statistics;
}

std::tuple<Tensor, Tensor, Tensor> flash_backward(const Tensor& grad_output, const Tensor& q, const Tensor& k,
                                                  const Tensor& v, const Tensor& output,
                                                  const Tensor& logsumexp, double dropout_p, bool causal,
                                                  const OptionalTensor& mask, Scale scale) {
  const auto decision = asked_of_flash({q, k, v, mask, dropout_p, causal, scale}, /*differentiated=*/true);
  if (!decision.problem) {
    return at::native::_scaled_dot_product_flash_attention_cpu_backward(
        grad_output, q, k, v, output, logsumexp, dropout_p, causal, mask, scale);
  }
  const auto gradients = backward(*decision.problem, 0, grad_output, {output, {}, statistics_of(logsumexp)},
                                  /*want_bias=*/false);
  return {lying_by_token(gradients.q), lying_by_token(gradients.k), lying_by_token(gradients.v)};
}

// ---- The operator that PyTorch keeps for other devices, with PyTorch's first derivative. Besides the output
// it returns what its backward operator reads: the statistics of the rows in the place of the logsumexp, and
// the dropout key in that of the seed.

using Fused = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;
using FusedGradients = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Fused fused(const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& bias, double dropout_p,
            bool causal, bool return_debug_mask, Scale scale) {
  const SdpaCall call{q, k, v, bias, dropout_p, causal, scale};
  const auto asked = problem_of(call);
  if (!asked.problem || q.dim() != 4) {  // PyTorch refuses the operator by name
    return at::native::_scaled_dot_product_fused_attention_overrideable(q, k, v, bias, dropout_p, causal,
                                                                        return_debug_mask, scale);
  }
  const auto& problem = *asked.problem;
  const uint64_t key = dropout_key_of(problem);
  const auto computed = forward(problem, key, {.statistics = is_differentiated(call)});
  Tensor seed;
  if (problem.has_dropout()) seed = at::scalar_tensor(static_cast<int64_t>(key), at::kLong);
  return {computed.output,
          computed.statistics,
          Tensor(),
          Tensor(),
          c10::SymInt(problem.queries()),
          c10::SymInt(problem.keys()),
          seed,
          Tensor(),
          Tensor()};
}

uint64_t key_of(const Tensor& seed) {
  return seed.defined() ? static_cast<uint64_t>(seed.item<int64_t>()) : 0;
}

FusedGradients fused_backward(const Tensor& grad_output, const Tensor& q, const Tensor& k, const Tensor& v,
                              const Tensor& bias, std::array<bool, 4> wanted, const Tensor& output,
                              const Tensor& statistics, const Tensor& /*cum_seq_q*/,
                              const Tensor& /*cum_seq_k*/, c10::SymInt /*max_q*/, c10::SymInt /*max_k*/,
                              double dropout_p, bool causal, const Tensor& seed, const Tensor& /*offset*/,
                              Scale scale) {
  const auto mask = as_optional(bias);
  const auto asked = problem_of({q, k, v, mask, dropout_p, causal, scale});
  TORCH_CHECK_NOT_IMPLEMENTED(asked.problem, "accelerate_sdpa: ", asked.reason);
  const bool want_bias = wanted[3] && asked.problem->bias.defined();
  const auto gradients =
      backward(*asked.problem, key_of(seed), grad_output, {output, {}, statistics}, want_bias);
  // A transform that maps over gradients cannot stack undefined ones.
  return {gradients.q, gradients.k, gradients.v, want_bias ? gradients.bias : at::empty({0}, q.options())};
}

bool records(const Tensor& x) {
  return kernels::requires_gradient(x);
}

// Under create_graph, the definition computes the gradients, because the kernel records no graph.
FusedGradients fused_backward_in_graph(const Tensor& grad_output, const Tensor& q, const Tensor& k,
                                       const Tensor& v, const Tensor& bias, std::array<bool, 4> wanted,
                                       const Tensor& output, const Tensor& statistics,
                                       const Tensor& cum_seq_q, const Tensor& cum_seq_k, c10::SymInt max_q,
                                       c10::SymInt max_k, double dropout_p, bool causal, const Tensor& seed,
                                       const Tensor& offset, Scale scale) {
  if (records(grad_output) || records(q) || records(k) || records(v) || records(bias)) {
    const auto mask = as_optional(bias);
    auto asked = problem_of({q, k, v, mask, dropout_p, causal, scale});
    TORCH_CHECK_NOT_IMPLEMENTED(asked.problem, "accelerate_sdpa: ", asked.reason);
    asked.problem->dropout_key = key_of(seed);
    auto found = kernels::reference::gradients_with_graph(std::move(*asked.problem), {grad_output, {}, {}});
    return {found.q, found.k, found.v, found.bias};
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return at::_scaled_dot_product_fused_attention_overrideable_backward_symint(
      grad_output, q, k, v, bias, wanted, output, statistics, cum_seq_q, cum_seq_k, std::move(max_q),
      std::move(max_k), dropout_p, causal, seed, offset, scale);
}

// ---- scaled_dot_product_attention under autograd

// The mask that autograd saves. PyTorch adds a converted copy of a bool mask, so a program may change its
// mask before the backward pass; and autograd cannot save an inference tensor.
OptionalTensor mask_to_save(const Problem& problem, bool differentiated) {
  const auto& mask = problem.keep.defined() ? problem.keep : problem.bias;
  if (!mask.defined()) return std::nullopt;
  const bool copied = differentiated && (problem.keep.defined() || mask.is_inference());
  return copied ? without_repeats(mask).clone() : mask;
}

Tensor sdpa(const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& mask, double dropout_p,
            bool causal, Scale scale, bool enable_gqa) {
  if (!is_on())
    return at::native::scaled_dot_product_attention(q, k, v, mask, dropout_p, causal, scale, enable_gqa);
  const SdpaCall call{q, k, v, mask, dropout_p, causal, scale, enable_gqa};
  const auto decision = decide_sdpa(call);
  if (!decision.problem) {
    const LeavingCall leave(decision.reason);
    return at::native::scaled_dot_product_attention(q, k, v, mask, dropout_p, causal, scale, enable_gqa);
  }
  count_taken();
  const auto& problem = *decision.problem;
  const auto output = std::get<0>(at::_scaled_dot_product_fused_attention_overrideable(
      problem.q, problem.k, problem.v, mask_to_save(problem, is_differentiated(call)), dropout_p, causal,
      /*return_debug_mask=*/false, scale));
  return q.dim() == 3 ? output.squeeze(1) : output;
}

// ---- Registration

constexpr const char* kSdpa = "scaled_dot_product_attention";
constexpr const char* kFlash = "_scaled_dot_product_flash_attention_for_cpu";
constexpr const char* kFlashBackward = "_scaled_dot_product_flash_attention_for_cpu_backward";
constexpr const char* kFused = "_scaled_dot_product_fused_attention_overrideable";
constexpr const char* kFusedBackward = "_scaled_dot_product_fused_attention_overrideable_backward";

c10::OperatorHandle operator_of(const char* name) {
  const auto found = c10::Dispatcher::singleton().findSchema({std::string("aten::") + name, ""});
  TORCH_CHECK_NOT_IMPLEMENTED(found, "accelerate_sdpa: this LibTorch has no operator aten::", name);
  return *found;
}

// PyTorch itself registers its fused operator for the CPU, and the others for none of these keys. The
// dispatcher lists a kernel that another one replaced as inactive.
void check_free() {
  for (const auto& [name, key] :
       {std::pair(kSdpa, c10::DispatchKey::AutogradCPU), std::pair(kFused, c10::DispatchKey::CPU),
        std::pair(kFusedBackward, c10::DispatchKey::CPU),
        std::pair(kFusedBackward, c10::DispatchKey::AutogradCPU)}) {
    TORCH_CHECK_NOT_IMPLEMENTED(!operator_of(name).hasKernelForDispatchKey(key),
                                "accelerate_sdpa: another library has registered aten::", name, " for ", key);
  }
  for (const auto* name : {kFlash, kFlashBackward}) {
    const auto state = operator_of(name).dumpState();
    const bool replaced =
        state.starts_with("CPU (inactive)") || state.find("\nCPU (inactive)") != std::string::npos;
    TORCH_CHECK_NOT_IMPLEMENTED(!replaced, "accelerate_sdpa: another library has registered aten::", name,
                                " for CPU");
  }
}

// PyTorch warns that its kernels are replaced, which is the purpose here.
struct Silence : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

}  // namespace

void register_sdpa_operators() {
  check_free();
  Silence silent;
  const c10::WarningUtils::WarningHandlerGuard silence(&silent);
  const auto library = [](c10::DispatchKey key) {
    return std::make_unique<torch::Library>(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  };
  auto cpu = library(c10::DispatchKey::CPU), autograd = library(c10::DispatchKey::AutogradCPU);
  try {
    cpu->impl(kFlash, flash);
    cpu->impl(kFlashBackward, flash_backward);
    cpu->impl(kFused, fused);
    cpu->impl(kFusedBackward, fused_backward);
    autograd->impl(kFusedBackward, fused_backward_in_graph);
    autograd->impl(kSdpa, sdpa);
  } catch (const c10::Error& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "accelerate_sdpa: this LibTorch is not supported: ", error.what_without_backtrace());
  }
  // Graphs hold these kernels, so they stay until the process ends.
  [[maybe_unused]] static const auto* const kept = new std::pair(std::move(cpu), std::move(autograd));
}

}  // namespace attentive::accelerate
