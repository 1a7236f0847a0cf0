#include "accelerate/sdpa_call.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <ATen/Context.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "core/autocast_modes.h"
#include "kernels/call.h"
#include "kernels/native_cpu/backend.h"
#include "kernels/pytorch/aten_internals.h"

namespace attentive::accelerate {
namespace {

using kernels::Problem;

std::atomic<bool> every_size{false};

bool has_mask(const SdpaCall& call) {
  return call.mask && call.mask->defined();
}

// Whether x is a CPU tensor and nothing else: no fake, functional, batched, nested or quantized tensor, none
// of a subclass that listens, and none with a pending sign change.
bool is_dense_cpu(const at::Tensor& x) {
  constexpr auto kCpu = c10::BackendComponent::CPUBit;
  static const auto kKeys = c10::DispatchKeySet(c10::DispatchKey::CPU) |
                            c10::getAutogradRelatedKeySetFromBackend(kCpu) |
                            c10::getAutocastRelatedKeySetFromBackend(kCpu);
  // The difference keeps the device.
  return x.defined() && x.key_set() - kKeys == c10::DispatchKeySet(kCpu);
}

// Whether a dispatch mode, a transform of torch.func, or functionalization sees the operators of this thread.
bool somebody_listens() {
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  return !(keys.included_ - c10::default_included_set - keys.excluded_).empty();
}

// The batch of a call's scores, to which q or k of batch 1 broadcasts.
int64_t batch_of(const SdpaCall& call) {
  return std::max(call.q.size(0), call.k.size(0));
}

// Why q, k and v are not those of one call; empty if they are. Heads do not broadcast.
std::string_view misfit(const SdpaCall& call) {
  const auto &q = call.q, &k = call.k, &v = call.v;
  if (k.scalar_type() != q.scalar_type() || v.scalar_type() != q.scalar_type())
    return "it needs q, k and v of one dtype";
  if (q.dim() != k.dim() || q.dim() != v.dim() || (q.dim() != 3 && q.dim() != 4))
    return "it needs q, k and v of rank 3 or 4";
  for (const auto* x : {&q, &k, &v}) {
    if (x->size(0) != batch_of(call) && x->size(0) != 1) return "the batches of q, k and v do not match";
  }
  if (q.size(-1) != k.size(-1) || k.size(-2) != v.size(-2)) return "the sizes of q, k and v do not match";
  if (q.size(-1) == 0) return "it does not accept empty inputs";
  if (q.dim() == 3 || q.size(1) == k.size(1)) {
    return q.dim() == 3 || k.size(1) == v.size(1) ? "" : "k and v differ in their heads";
  }
  if (!call.shares_heads) return "heads share keys only with enable_gqa";
  if (k.size(1) != v.size(1)) return "k and v differ in their heads";
  return k.size(1) > 0 && q.size(1) % k.size(1) == 0 ? ""
                                                     : "the heads of q are not a multiple of the heads of k";
}

// Why the mask is none that broadcasts from its last dimension; empty if it is one.
std::string_view mask_misfit(const SdpaCall& call) {
  const auto& mask = *call.mask;
  const auto type = mask.scalar_type();
  if (type != at::kBool && type != at::kFloat && type != call.q.scalar_type())
    return "it needs a mask that is bool, float32 or of the dtype of q";
  if (mask.dim() < 2 || mask.dim() > call.q.dim()) return "it needs a mask of rank 2 to that of q";
  for (int64_t d = 1; d <= mask.dim(); ++d) {
    const int64_t whole = d == 1 ? call.k.size(-2) : d == call.q.dim() ? batch_of(call) : call.q.size(-d);
    if (mask.size(-d) != 1 && mask.size(-d) != whole)
      return "it needs a mask that broadcasts to (B, H, L, S)";
  }
  return call.causal ? "a mask and is_causal exclude each other" : "";
}

// (B, L, D) becomes (B, 1, L, D); a mask of lower rank than q gets leading dimensions first.
at::Tensor of_rank_4(at::Tensor x, int64_t rank_of_q) {
  while (x.dim() < rank_of_q) x = x.unsqueeze(0);
  return rank_of_q == 3 ? x.unsqueeze(1) : x;
}

}  // namespace

Decision problem_of(const SdpaCall& call) {
  if (const auto why = misfit(call); !why.empty()) return Decision::left(std::string(why));
  if (!(call.dropout_p >= 0.0 && call.dropout_p <= 1.0)) return Decision::left("dropout_p is no probability");
  Problem problem;
  const auto rank = call.q.dim();
  problem.q = of_rank_4(call.q, rank);
  if (call.q.size(0) != batch_of(call)) problem.q = problem.q.expand({batch_of(call), -1, -1, -1});
  problem.k = of_rank_4(call.k, rank);
  problem.v = of_rank_4(call.v, rank);
  problem.scale = call.scale;
  problem.band = kernels::band_of({.causal = call.causal ? Causal::TopLeft : Causal::None}, problem.queries(),
                                  problem.keys());
  problem.dropout_p = call.dropout_p;
  if (problem.has_dropout()) problem.dropout_stream = DropoutStream::Counter;
  if (auto verdict = kernels::native_cpu::verdict(problem); !verdict.can)
    return Decision::left(std::move(verdict.reason));
  if (has_mask(call)) {
    if (const auto why = mask_misfit(call); !why.empty()) return Decision::left(std::string(why));
    auto& term = call.mask->scalar_type() == at::kBool ? problem.keep : problem.bias;
    term = of_rank_4(*call.mask, rank);
  }
  return {std::move(problem), {}};
}

bool is_differentiated(const SdpaCall& call) {
  return kernels::requires_gradient(call.q) || kernels::requires_gradient(call.k) ||
         kernels::requires_gradient(call.v) || (has_mask(call) && kernels::requires_gradient(*call.mask));
}

Decision decide_sdpa(const SdpaCall& call) {
  const auto wanted = sdpa_switch().load(std::memory_order_relaxed);
  if (!at::globalContext().userEnabledFlashSDP())
    return Decision::left("the program excludes fused kernels (sdpa_kernel, setSDPUseFlash)");
  if (!is_dense_cpu(call.q) || !is_dense_cpu(call.k) || !is_dense_cpu(call.v) ||
      (has_mask(call) && !is_dense_cpu(*call.mask)))
    return Decision::left("it needs ordinary CPU tensors");
  if (somebody_listens()) return Decision::left("a dispatch mode or a transform sees PyTorch's operators");
  if (call.dropout_p > 0.0 && wanted == Switch::ExactDropout)
    return Decision::left("dropout is left to PyTorch's random numbers (SdpaDropout::Exact)");
  if (has_tangent(call.q) || has_tangent(call.k) || has_tangent(call.v) ||
      (has_mask(call) && has_tangent(*call.mask)))
    return Decision::left("it does not support forward-mode differentiation");
  auto decision = problem_of(call);
  if (decision.problem && !worth_taking(*decision.problem, is_differentiated(call)))
    return Decision::left("PyTorch is faster for a call of this size");
  return decision;
}

Decision decide_flash(const SdpaCall& call, bool differentiated) {
  // The operator has its own errors, which only PyTorch's kernel reports.
  if (call.dropout_p != 0.0) return Decision::left("dropout_p is an error of this operator");
  if (call.q.dim() != 4) return Decision::left("it needs q, k and v of rank 4 in this operator");
  if (call.k.dim() == 4 && call.v.dim() == 4 &&
      (call.k.size(0) != call.q.size(0) || call.v.size(0) != call.q.size(0)))
    return Decision::left("it does not broadcast batches in this operator");
  if (call.v.dim() == 4 && call.v.size(3) != call.q.size(3))
    return Decision::left("the sizes of q, k and v do not match");
  if (has_mask(call) && call.mask->dim() == 3)
    return Decision::left("it needs a mask of rank 2 or 4 in this operator");
  auto decision = problem_of(call);
  if (decision.problem && !worth_taking(*decision.problem, differentiated))
    return Decision::left("PyTorch is faster for a call of this size");
  return decision;
}

bool worth_taking(const Problem& problem, bool differentiated) {
  // PyTorch composes calls with dropout or shared keys of operators for each step, which is slower at every
  // size.
  const bool shares = problem.k.size(0) < problem.batch() || problem.v.size(0) < problem.batch();
  if (every_size || problem.has_dropout() || shares || !differentiated) return true;
  // In float16, the kernel is faster at every size.
  if (problem.q.scalar_type() == at::kHalf) return true;
  // With a backward pass, a few pairs of queries and keys cost less than what the kernel does once a head.
  constexpr int64_t kFewPairs = 64, kManyNumbers = 512;
  return problem.queries() * problem.keys() > kFewPairs ||
         problem.batch() * problem.heads() * problem.head_dim() < kManyNumbers;
}

EverySizeGuard::EverySizeGuard() : before_(every_size.exchange(true)) {}
EverySizeGuard::~EverySizeGuard() {
  every_size = before_;
}

}  // namespace attentive::accelerate
