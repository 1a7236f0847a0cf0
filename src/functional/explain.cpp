#include <ostream>

#include <ATen/TensorOperators.h>
#include <ATen/ops/sum.h>
#include <fmt/format.h>

#include <attentive/functional/explain.h>

#include "core/kept_tensors.h"
#include "functional/dispatch.h"
#include "functional/mask_check.h"
#include "functional/problem_builder.h"
#include "kernels/native_cpu/backend.h"

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

namespace {

// A text that says how many tiles of the problem's mask function the native kernel skips or need not test.
std::string mask_tiles(const kernels::Problem& problem) {
  using detail::BlockClasses;
  const auto& name = problem.mask.name();
  const auto blocks = kernels::native_cpu::blocks_of(problem);
  if (!blocks)
    return fmt::format(
        "mask function {}: every pair is tested, since tiles are skipped from {} queries and keys on", name,
        2 * BlockClasses::kSize);
  const auto count = [&](BlockClasses::Class kind) { return blocks->classes.eq(kind).sum().item<int64_t>(); };
  return fmt::format("mask function {}: {} of {} tiles of {} x {} pairs are skipped, and {} need no test",
                     name, count(BlockClasses::Empty), blocks->classes.numel(), BlockClasses::kSize,
                     BlockClasses::kSize, count(BlockClasses::Full));
}

}  // namespace

Explanation explain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionOptions& options, const AttentionExtras& extras) {
  const auto problem = normalize("explain", q, k, v, options, extras).problem;
  auto explanation = explain_dispatch(options.backend, problem);
  if (problem.score) explanation.notes.push_back(fmt::format("score function {}", problem.score.name()));
  if (problem.q.is_meta()) return explanation;  // a mask without numbers
  const KeptTensors kept;
  if (problem.mask) {
    const bool tiled = explanation.chosen == Backend::Native && problem.q.is_cpu();
    explanation.notes.push_back(tiled ? mask_tiles(problem)
                                      : fmt::format("mask function {}", problem.mask.name()));
  }
  for (auto& note : {queries_without_keys(problem), reversed_mask(extras.mask, options, problem)}) {
    if (!note.empty()) explanation.notes.push_back(note);
  }
  return explanation;
}

}  // namespace attentive
