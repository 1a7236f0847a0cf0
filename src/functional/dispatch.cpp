#include "functional/dispatch.h"

#include <algorithm>
#include <array>
#include <span>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <attentive/core/guards.h>

#include "core/modes.h"
#include "kernels/native_cpu/backend.h"
#include "kernels/native_cuda/backend.h"
#include "kernels/pytorch/backend.h"
#include "kernels/reference/backend.h"

namespace attentive {
namespace {

using kernels::Outcome;
using kernels::Problem;
using kernels::Verdict;

struct BackendFunctions {
  Backend backend;
  const char* what;
  Verdict (*verdict)(const Problem&);
  Outcome (*run)(const Problem&);
  Verdict (*verdict_after_all)(const Problem&);  // verdict of `run` if `verdict` says yes
};

// Runs a backend whose first verdict is final.
template <AttentionResult (*kRun)(const Problem&)>
Outcome always(const Problem& problem) {
  return {kRun(problem), {}};
}
Verdict yes(const Problem&) {
  return {};
}

// The fastest backend comes first; the reference, which can express every problem, ends each list.
constexpr BackendFunctions kReference = {Backend::Reference, "the composed definition, O(L S) memory",
                                         kernels::reference::verdict, always<kernels::reference::run>, yes};
constexpr BackendFunctions kTorch = {Backend::Torch, "PyTorch's fused kernel, O(L) memory",
                                     kernels::pytorch::verdict, kernels::pytorch::run,
                                     kernels::pytorch::verdict_after_all};
constexpr std::array<BackendFunctions, 3> kElsewhere = {{
    {Backend::Native, "this package's CPU kernel, O(L) memory", kernels::native_cpu::verdict,
     always<kernels::native_cpu::run>, yes},
    kTorch,
    kReference,
}};
constexpr std::array<BackendFunctions, 3> kOnCuda = {{
    kTorch,
    {Backend::Native, "this package's fused softmax on CUDA, O(L S) memory", kernels::native_cuda::verdict,
     always<kernels::native_cuda::run>, yes},
    kReference,
}};

std::span<const BackendFunctions> candidates(const Problem& problem) {
  return problem.q.is_cuda() ? kOnCuda : kElsewhere;
}

const BackendFunctions* find(Backend backend, const Problem& problem) {
  for (const auto& candidate : candidates(problem)) {
    if (candidate.backend == backend) return &candidate;
  }
  return nullptr;
}

bool has_tangents(const Problem& problem) {
  for (const auto tensor : kernels::kTensors) {
    if (has_tangent(problem.*tensor)) return true;
  }
  if (!problem.score) return false;
  const auto& captured = problem.score.function()->captured();
  return std::any_of(captured.begin(), captured.end(),
                     [](const auto& one) { return has_tangent(one->tensor); });
}

Verdict verdict_of(const BackendFunctions& candidate, const Problem& problem) {
  if (candidate.backend != Backend::Reference && has_tangents(problem))
    return Verdict::no("it does not support forward-mode differentiation");
  return candidate.verdict(problem);
}

// The verdict that includes the one of run().
Verdict whole_verdict_of(const BackendFunctions& candidate, const Problem& problem) {
  const auto verdict = verdict_of(candidate, problem);
  return verdict.can ? candidate.verdict_after_all(problem) : verdict;
}

// Runs the problem if the backend accepts it.
Outcome attempt(const BackendFunctions& candidate, const Problem& problem) {
  const auto verdict = verdict_of(candidate, problem);
  return verdict.can ? candidate.run(problem) : Outcome{{}, verdict};
}

// The backend of a call: the forced one, or the first that `accepts`, asked in the order of Auto.
template <class Accepts>
const BackendFunctions& choose(const char* caller, Backend forced, const Problem& problem,
                               const Accepts& accepts) {
  if (forced != Backend::Auto) {
    const BackendFunctions* candidate = find(forced, problem);
    TORCH_CHECK_VALUE(candidate, caller, ": backend ", to_string(forced), " is not part of this build");
    const Verdict verdict = accepts(*candidate);
    TORCH_CHECK_VALUE(verdict.can, caller, ": backend ", to_string(forced),
                      " cannot express this call: ", verdict.reason);
    return *candidate;
  }
  const BackendFunctions* preferred = find(BackendGuard::current(), problem);
  if (preferred && accepts(*preferred).can) return *preferred;
  for (const auto& candidate : candidates(problem)) {
    if (&candidate != preferred && accepts(candidate).can) return candidate;
  }
  return kReference;
}

}  // namespace

AttentionResult dispatch(const char* caller, Backend forced, const Problem& problem) {
  // Inputs were cast when the call was normalized. Autocast is off here, so that accumulations keep the
  // precision they were written with.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  AttentionResult result;
  choose(caller, forced, problem, [&](const BackendFunctions& candidate) {
    auto outcome = attempt(candidate, problem);
    result = std::move(outcome.result);
    return outcome.verdict;
  });
  return result;
}

Explanation explain_dispatch(Backend forced, const Problem& problem) {
  Explanation result;
  for (const auto& candidate : candidates(problem)) {
    const auto verdict = whole_verdict_of(candidate, problem);
    result.candidates.push_back(
        {candidate.backend, verdict.can, verdict.can ? candidate.what : verdict.reason});
  }
  result.chosen = choose("explain", forced, problem, [&](const BackendFunctions& candidate) {
                    return whole_verdict_of(candidate, problem);
                  }).backend;
  if (problem.has_dropout() && problem.dropout_stream == DropoutStream::Aten) {
    result.notes.emplace_back(
        "the Aten dropout stream draws one number per score in sequence, which rules out the fused kernels; "
        "DropoutStream::Any allows them");
  }
  return result;
}

}  // namespace attentive
