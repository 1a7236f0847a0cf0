#include "kernels/pytorch/backend.h"

#include "kernels/native_backward.h"
#include "kernels/pytorch/aten_internals.h"

namespace attentive::kernels::pytorch {

bool needs_gradient(const Problem& problem) {
  return requires_gradient(problem.q) || requires_gradient(problem.k) || requires_gradient(problem.v);
}

Verdict verdict(const Problem& problem) {
  const auto& device = problem.q.device();
  if (!device.is_cpu() && !device.is_cuda())
    return Verdict::no("its kernels run only on the CPU and on CUDA");
  if (problem.weights != Weights::None) return Verdict::no("its kernels cannot return the weights");
  if (problem.softcap) return Verdict::no("its kernels have no softcap");
  if (problem.score) return Verdict::no("its kernels take no score function");
  if (problem.mask) return Verdict::no("its kernels take no mask function");
  if (!problem.normalise) return Verdict::no("its kernels compute a softmax");
  if (problem.sinks.defined()) return Verdict::no("its kernels have no sinks");
  if (problem.is_empty()) return Verdict::no("its kernels do not accept empty inputs");
  if (problem.head_dim() != problem.value_dim())
    return Verdict::no("its kernels need v to have the head_dim of q");
  if (problem.logsumexp && needs_gradient(problem)) return Verdict::no("its logsumexp has no gradient");
  return device.is_cpu() ? verdict_cpu(problem) : verdict_cuda(problem);
}

Outcome run(const Problem& problem) {
  return problem.q.is_cpu() ? run_cpu(problem) : Outcome{run_cuda(problem), {}};
}

Verdict verdict_after_all(const Problem& problem) {
  return problem.q.is_cpu() ? verdict_after_all_cpu(problem) : Verdict{};
}

namespace {

constexpr int64_t kReadAlignment = 16;  // bytes that the kernels read at a time

bool is_half(const Problem& problem) {
  return problem.q.scalar_type() == at::kHalf || problem.q.scalar_type() == at::kBFloat16;
}

// The verdict for FlashAttention-2, which has half types, bottom-right causal masks and windows, and grouped
// heads. PyTorch builds it without ALiBi.
Verdict flash_verdict(const Problem& problem) {
  if (!is_half(problem)) return Verdict::no("its FlashAttention kernel accepts only float16 and bfloat16");
  if (problem.head_dim() > 256 || problem.head_dim() % 8 != 0) {
    return Verdict::no("its FlashAttention kernel needs a head_dim that is a multiple of 8, at most 256");
  }
  const int64_t aligned = problem.keys() - problem.queries();
  if (problem.band.hi < aligned || (problem.band.has_lo() && problem.band.lo > aligned)) {
    return Verdict::no("its FlashAttention kernel has only the bottom-right causal alignment");
  }
  if (problem.alibi_slopes.defined()) return Verdict::no("its FlashAttention kernel has no ALiBi");
  if (problem.band.has_hi() && problem.band.hi - aligned >= problem.keys()) {
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
  if (problem.head_dim() * problem.q.element_size() % kReadAlignment != 0)
    return Verdict::no("its float32 CUDA kernel needs a head_dim that is a multiple of 4");
  return {};
}

// Whether cuDNN's attention is used for a problem that `flash_verdict` accepts, if PyTorch prefers it on this
// GPU. It is asked for no masks, since its results with one were wrong at some lengths; nor for one query,
// since it compiles something for every shape, and a cache has another number of keys at each token.
bool cudnn_serves(const Problem& problem) {
  const auto& band = problem.band;
  return problem.queries() > 1 && problem.heads() == problem.kv_heads() && !problem.has_dropout() &&
         !problem.logsumexp && (band.unbounded() || (band.only_causal() && band.hi == 0));
}

// x, or a copy of it if a row does not begin at a multiple of kReadAlignment.
at::Tensor aligned(const at::Tensor& x) {
  const auto is_aligned = [](int64_t bytes) { return bytes % kReadAlignment == 0; };
  bool all =
      x.stride(-1) == 1 && is_aligned(static_cast<int64_t>(reinterpret_cast<intptr_t>(x.const_data_ptr())));
  for (int64_t d = 0; d + 1 < x.dim(); ++d)
    all = all && (x.size(d) == 1 || is_aligned(x.stride(d) * x.element_size()));
  return all ? x : x.clone(at::MemoryFormat::Contiguous);
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
    return aligned(requires_gradient(x) ? differentiable_once(Backend::Torch, x) : x);
  };
  const auto q = once(problem.q), k = once(problem.k), v = once(problem.v);
  aten::FusedResult fused;
  const auto& band = problem.band;
  if (flash_verdict(problem).can) {
    if (cudnn_serves(problem) && aten::prefers_cudnn(q, k, v, band.has_hi(), problem.scale)) {
      fused = aten::cudnn_cuda(q, k, v, band.has_hi(), problem.scale, needs_gradient(problem));
      return {fused.output, {}, {}};
    }
    const int64_t aligned = problem.keys() - problem.queries();
    const bool causal = band.hi == aligned;
    const int64_t left = band.has_lo() ? aligned - band.lo : -1;
    const int64_t right = band.has_hi() && !causal ? band.hi - aligned : -1;
    fused =
        aten::flash_cuda(q, k, v, causal, left, right, problem.dropout_p, problem.scale, problem.logsumexp);
  } else {
    fused = aten::efficient_cuda(q, k, v, band.has_hi(), problem.dropout_p, problem.scale, problem.logsumexp,
                                 needs_gradient(problem));
  }
  return {fused.output, {}, fused.logsumexp};
}

}  // namespace attentive::kernels::pytorch
