#include "kernels/native_backward.h"
#include "kernels/pytorch/aten_internals.h"
#include "kernels/pytorch/backend.h"

namespace attentive::kernels::pytorch {
namespace {

bool is_half(const Problem& problem) {
  return problem.q.scalar_type() == at::kHalf || problem.q.scalar_type() == at::kBFloat16;
}

// The verdict for FlashAttention-2, which has half types, bottom-right causal masks and windows, and grouped
// heads.
Verdict flash_verdict(const Problem& problem) {
  if (!is_half(problem)) return Verdict::no("its FlashAttention kernel accepts only float16 and bfloat16");
  if (problem.head_dim() > 256 || problem.head_dim() % 8 != 0) {
    return Verdict::no("its FlashAttention kernel needs a head_dim that is a multiple of 8, at most 256");
  }
  if (problem.band.hi < problem.band.origin) {
    return Verdict::no("its FlashAttention kernel has only the bottom-right causal alignment");
  }
  if (problem.alibi_slopes.defined() && (needs_gradient(problem) || problem.alibi_slopes.requires_grad())) {
    return Verdict::no("its FlashAttention kernel has no ALiBi in the backward pass");
  }
  if (problem.band.has_hi() && problem.band.hi - problem.band.origin >= problem.keys()) {
    return Verdict::no("its FlashAttention kernel drops a right bound as large as the number of keys");
  }
  if (problem.band.hi < 0) {
    return Verdict::no("its FlashAttention kernel does not accept queries without keys");
  }
  return {};
}

// The verdict for the memory-efficient kernel, which also has float32, but only top-left causal masks.
Verdict efficient_verdict(const Problem& problem) {
  if (problem.q.scalar_type() == at::kDouble) return Verdict::no("its CUDA kernels do not accept float64");
  if ((!problem.band.unbounded() && !problem.band.only_causal()) || problem.alibi_slopes.defined()) {
    return Verdict::no("its float32 CUDA kernel has neither windows nor ALiBi");
  }
  if (problem.heads() != problem.kv_heads())
    return Verdict::no("its float32 CUDA kernel has no grouped heads");
  if (problem.band.has_hi() && problem.band.hi != 0) {
    return Verdict::no("its float32 CUDA kernel has only the top-left causal alignment");
  }
  return {};
}

}  // namespace

Verdict verdict_cuda(const Problem& problem) {
  if (problem.has_mask()) return Verdict::no("its CUDA kernels read hidden scores before they mask them");
  if (problem.has_dropout() && (problem.dropout_stream != DropoutStream::Any || problem.generator)) {
    return Verdict::no("its CUDA kernels draw dropout from a stream of their own");
  }
  if (problem.scale.value_or(1.0) < 0.0)
    return Verdict::no("its CUDA kernels take the maximum of the scores before a negative scale reverses it");
  const auto flash = flash_verdict(problem);
  if (flash.can) return flash;
  const auto efficient = efficient_verdict(problem);
  return efficient.can ? efficient : (is_half(problem) ? flash : efficient);
}

AttentionResult run_cuda(const Problem& problem) {
  const auto once = [](const at::Tensor& x) {
    return requires_gradient(x) ? differentiable_once(Backend::Torch, x) : x;
  };
  const auto q = once(problem.q), k = once(problem.k), v = once(problem.v);
  aten::FusedResult fused;
  if (flash_verdict(problem).can) {
    std::optional<at::Tensor> slopes;
    if (problem.alibi_slopes.defined())
      slopes = problem.alibi_slopes.to(at::kFloat).expand({problem.batch(), problem.heads()});
    const auto& band = problem.band;
    const bool causal = band.hi == band.origin;
    const int64_t left = band.has_lo() ? band.origin - band.lo : -1;
    const int64_t right = band.has_hi() && !causal ? band.hi - band.origin : -1;
    fused = aten::flash_cuda(q, k, v, causal, left, right, problem.dropout_p, problem.scale, slopes);
  } else {
    fused = aten::efficient_cuda(q, k, v, problem.band.has_hi(), problem.dropout_p, problem.scale,
                                 problem.logsumexp);
  }
  return {fused.output, {}, problem.logsumexp ? fused.logsumexp : at::Tensor()};
}

}  // namespace attentive::kernels::pytorch
