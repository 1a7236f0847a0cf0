#include "kernels/pytorch/backend.h"

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

}  // namespace attentive::kernels::pytorch
