#include "functional/dispatch.h"

#include <array>
#include <span>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <attentive/core/guards.h>

#include "core/forward_mode.h"
#include "kernels/native_cpu/backend.h"
#include "kernels/native_cuda/backend.h"
#include "kernels/reference/backend.h"
#include "kernels/torch/backend.h"

namespace attentive {
namespace {

using kernels::Outcome;
using kernels::Problem;
using kernels::Verdict;

struct Entry {
  Backend backend;
  const char* what;
  Verdict (*verdict)(const Problem&);
  Outcome (*run)(const Problem&);
  Verdict (*verdict_after_all)(const Problem&);  // that of `run`, where `verdict` says yes
};

// A backend whose first verdict holds.
template <AttentionResult (*kRun)(const Problem&)>
Outcome always(const Problem& problem) {
  return {kRun(problem), {}};
}
Verdict yes(const Problem&) {
  return {};
}

// Fastest first; the reference expresses everything and ends each list.
constexpr Entry kReference = {Backend::Reference, "the composed definition, O(L S) memory",
                              kernels::reference::verdict, always<kernels::reference::run>, yes};
constexpr Entry kTorch = {Backend::Torch, "PyTorch's fused kernel, O(L) memory", kernels::pytorch::verdict,
                          kernels::pytorch::run, kernels::pytorch::verdict_after_all};
constexpr std::array<Entry, 3> kElsewhere = {{
    {Backend::Native, "this package's CPU kernel, O(L) memory", kernels::native_cpu::verdict,
     always<kernels::native_cpu::run>, yes},
    kTorch,
    kReference,
}};
constexpr std::array<Entry, 3> kOnCuda = {{
    kTorch,
    {Backend::Native, "this package's fused softmax on CUDA, O(L S) memory", kernels::native_cuda::verdict,
     always<kernels::native_cuda::run>, yes},
    kReference,
}};

std::span<const Entry> candidates(const Problem& problem) {
  return problem.q.is_cuda() ? kOnCuda : kElsewhere;
}

const Entry* find(Backend backend, const Problem& problem) {
  for (const auto& entry : candidates(problem)) {
    if (entry.backend == backend) return &entry;
  }
  return nullptr;
}

Verdict verdict_of(const Entry& entry, const Problem& problem) {
  for (const auto tensor : kernels::kTensors) {
    if (entry.backend != Backend::Reference && has_tangent(problem.*tensor))
      return Verdict::no("it does not support forward-mode differentiation");
  }
  return entry.verdict(problem);
}

// What run() would say, too.
Verdict whole_verdict_of(const Entry& entry, const Problem& problem) {
  const auto verdict = verdict_of(entry, problem);
  return verdict.can ? entry.verdict_after_all(problem) : verdict;
}

// Runs the problem if the backend takes it.
Outcome attempt(const Entry& entry, const Problem& problem) {
  const auto verdict = verdict_of(entry, problem);
  return verdict.can ? entry.run(problem) : Outcome{{}, verdict};
}

// The backend of a call: the forced one, or the first that `accepts`, asked in the order of Auto.
template <class Accepts>
const Entry& choose(const char* who, Backend forced, const Problem& problem, const Accepts& accepts) {
  if (forced != Backend::Auto) {
    const Entry* entry = find(forced, problem);
    TORCH_CHECK_VALUE(entry, who, ": backend ", to_string(forced), " is not part of this build");
    const Verdict verdict = accepts(*entry);
    TORCH_CHECK_VALUE(verdict.can, who, ": backend ", to_string(forced),
                      " cannot express this call: ", verdict.reason);
    return *entry;
  }
  const Entry* preferred = find(BackendGuard::current(), problem);
  if (preferred && accepts(*preferred).can) return *preferred;
  for (const auto& entry : candidates(problem)) {
    if (&entry != preferred && accepts(entry).can) return entry;
  }
  return kReference;
}

}  // namespace

AttentionResult dispatch(const char* who, Backend forced, const Problem& problem) {
  // Inputs were cast when the call was normalized; inside, accumulations keep the precision they were written
  // with.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  AttentionResult result;
  choose(who, forced, problem, [&](const Entry& entry) {
    auto outcome = attempt(entry, problem);
    result = std::move(outcome.result);
    return outcome.verdict;
  });
  return result;
}

Explanation explain_dispatch(Backend forced, const Problem& problem) {
  Explanation result;
  for (const auto& entry : candidates(problem)) {
    const auto verdict = whole_verdict_of(entry, problem);
    result.candidates.push_back({entry.backend, verdict.can, verdict.can ? entry.what : verdict.reason});
  }
  result.chosen = choose("explain", forced, problem, [&](const Entry& entry) {
                    return whole_verdict_of(entry, problem);
                  }).backend;
  if (problem.has_dropout() && problem.dropout_stream == DropoutStream::Aten) {
    result.notes.emplace_back(
        "the Aten dropout stream draws one number per score in sequence, which rules out the fused kernels; "
        "DropoutStream::Any allows them");
  }
  return result;
}

}  // namespace attentive
