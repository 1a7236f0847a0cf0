#include <ostream>

#include <fmt/format.h>

#include <attentive/functional/explain.h>

#include "core/kept_tensors.h"
#include "functional/dispatch.h"
#include "functional/mask_check.h"
#include "functional/problem_builder.h"

namespace attentive {

std::string Explanation::to_string() const {
  std::string text = fmt::format("{:<10} {:<9} {}\n", "backend", "", "why");
  for (const auto& candidate : candidates) {
    const char* state = candidate.backend == chosen ? "chosen" : candidate.available ? "possible" : "refused";
    text +=
        fmt::format("{:<10} {:<9} {}\n", attentive::to_string(candidate.backend), state, candidate.reason);
  }
  for (const auto& note : notes) text += fmt::format("note: {}\n", note);
  return text;
}

std::ostream& operator<<(std::ostream& out, const Explanation& explanation) {
  return out << explanation.to_string();
}

Explanation explain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionOptions& options, const AttentionExtras& extras) {
  const auto problem = normalize("explain", q, k, v, options, extras).problem;
  auto explanation = explain_dispatch(options.backend, problem);
  if (problem.score) explanation.notes.push_back(fmt::format("score function: {}", problem.score.name()));
  if (problem.mask) {
    explanation.notes.push_back(fmt::format("mask function: {}{}", problem.mask.name(),
                                            problem.blocks ? ", whose tiles are kept" : ""));
  }
  if (problem.q.is_meta()) return explanation;  // a mask without numbers
  const KeptTensors kept;
  for (auto& note : {queries_without_keys(problem), reversed_mask(extras.mask, options, problem)}) {
    if (!note.empty()) explanation.notes.push_back(note);
  }
  return explanation;
}

}  // namespace attentive
