#include "functional/dispatch.h"

#include <array>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <attentive/core/guards.h>

#include "kernels/cpu/native.h"
#include "kernels/fused/fused.h"
#include "kernels/reference/reference.h"

namespace attentive {
namespace {

using kernels::Problem;
using kernels::Verdict;

struct Entry {
  Backend backend;
  const char* what;
  Verdict (*verdict)(const Problem&);
  AttentionResult (*run)(const Problem&);
};

Verdict always(const Problem&) {
  return {};
}

// Fastest first; the reference expresses everything and ends the list.
constexpr std::array<Entry, 3> kBackends = {{
    {Backend::Native, "this package's CPU kernel, O(L) memory", kernels::cpu::verdict, kernels::cpu::run},
    {Backend::Torch, "PyTorch's fused kernel, O(L) memory", kernels::fused::verdict, kernels::fused::run},
    {Backend::Reference, "the composed definition, O(L S) memory", always, kernels::reference::run},
}};

const Entry* find(Backend backend) {
  for (const auto& entry : kBackends) {
    if (entry.backend == backend) return &entry;
  }
  return nullptr;
}

const Entry& choose(const char* who, Backend forced, const Problem& problem) {
  if (forced != Backend::Auto) {
    const Entry* entry = find(forced);
    TORCH_CHECK_VALUE(entry, who, ": backend ", to_string(forced), " is not part of this build");
    const auto verdict = entry->verdict(problem);
    TORCH_CHECK_VALUE(verdict.can, who, ": backend ", to_string(forced),
                      " cannot express this call: ", verdict.reason);
    return *entry;
  }
  if (const Entry* preferred = find(BackendGuard::current()); preferred && preferred->verdict(problem).can) {
    return *preferred;
  }
  for (const auto& entry : kBackends) {
    if (entry.verdict(problem).can) return entry;
  }
  return kBackends.back();
}

}  // namespace

AttentionResult dispatch(const char* who, Backend forced, const Problem& problem) {
  // Inputs were cast when the call was normalized; inside, accumulations keep the precision they were written
  // with.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return choose(who, forced, problem).run(problem);
}

Explanation explain_dispatch(Backend forced, const Problem& problem) {
  Explanation result;
  for (const auto& entry : kBackends) {
    const auto verdict = entry.verdict(problem);
    result.candidates.push_back({entry.backend, verdict.can, verdict.can ? entry.what : verdict.reason});
  }
  result.chosen = choose("explain", forced, problem).backend;
  if (problem.has_dropout() && problem.dropout_stream == DropoutStream::Aten) {
    result.notes.emplace_back(
        "the Aten dropout stream draws one number per score in sequence and keeps the fused kernels out; "
        "DropoutStream::Any lets them in");
  }
  return result;
}

}  // namespace attentive
