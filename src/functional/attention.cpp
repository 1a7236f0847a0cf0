#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <ostream>
#include <span>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/core/options.h>
#include <attentive/functional/attention.h>
#include <attentive/functional/explain.h>

#include "core/autocast_modes.h"
#include "core/normal_tensors.h"
#include "functional/dispatch.h"
#include "functional/mask_check.h"
#include "functional/problem_builder.h"
#include "functional/recording.h"
#include "kernels/dropout_counter.h"
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

// A backend without a packed form: it takes a packed problem if it takes each of its sequences, and computes
// one after the other.
template <Verdict (*kVerdict)(const Problem&)>
Verdict each_sequence(const Problem& problem) {
  if (!problem.sequences) return kVerdict(problem);
  Verdict verdict;
  for (size_t n = 0; verdict.can && n < problem.sequences->size(); ++n)
    verdict = kVerdict(kernels::sequence_of(problem, n));
  return verdict;
}
template <Outcome (*kRun)(const Problem&)>
Outcome run_each_sequence(const Problem& problem) {
  return problem.sequences ? kernels::run_by_sequence(problem, kRun) : kRun(problem);
}

// The fastest backend comes first; the reference, which can express every problem, ends each list.
constexpr BackendFunctions kReference = {Backend::Reference, "the composed definition, O(L S) memory",
                                         kernels::reference::verdict, always<kernels::reference::run>, yes};
constexpr BackendFunctions kTorch = {
    Backend::Torch, "PyTorch's fused kernel, O(L) memory", each_sequence<kernels::pytorch::verdict>,
    run_each_sequence<kernels::pytorch::run>, each_sequence<kernels::pytorch::verdict_after_all>};
constexpr std::array<BackendFunctions, 3> kElsewhere = {{
    {Backend::Native, "this package's CPU kernel, O(L) memory", kernels::native_cpu::verdict,
     always<kernels::native_cpu::run>, yes},
    kTorch,
    kReference,
}};
constexpr std::array<BackendFunctions, 3> kOnCuda = {{
    kTorch,
    {Backend::Native, "this package's fused softmax on CUDA, O(L S) memory",
     each_sequence<kernels::native_cuda::verdict>, run_each_sequence<always<kernels::native_cuda::run>>, yes},
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

namespace {

// Restores the leading sizes of the caller's q in a rank-4 result (rank 3 for logsumexp).
at::Tensor restore(const at::Tensor& tensor, const at::DimVector& leading, int64_t trailing) {
  if (!tensor.defined() || leading.size() == 2) return tensor;
  std::vector<int64_t> sizes(leading.begin(), leading.end());  // g++ 12 warns about copies of a SmallVector
  for (int64_t d = tensor.dim() - trailing; d < tensor.dim(); ++d) sizes.push_back(tensor.size(d));
  return tensor.reshape(sizes);
}

}  // namespace

AttentionResult attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionOptions& options, const AttentionExtras& extras) {
  const auto call = normalize("attention", q, k, v, options, extras);
  const auto result = dispatch("attention", options.backend, call.problem);
  if (recording::wanted()) [[unlikely]]
    recording::attention(extras.caller, call.problem, options);
  return {restore(result.output, call.leading, 2), restore(result.weights, call.leading, 2),
          restore(result.logsumexp, call.leading, 1)};
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionOptions& options, const Mask& mask) {
  AttentionExtras extras;
  extras.mask = mask;
  return attention(q, k, v, options, extras).output;
}

AttentionResult attention_varlen(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const at::Tensor& cu_seqlens_q, const at::Tensor& cu_seqlens_k,
                                 const AttentionOptions& options, const AttentionExtras& extras) {
  auto call = packed_call(q, k, v, cu_seqlens_q, cu_seqlens_k, options, extras);
  auto& problem = call.problem;
  if (problem.has_dropout() && problem.dropout_p < 1.0 && problem.dropout_stream != DropoutStream::Aten)
    problem.dropout_key = kernels::draw_dropout_key(problem.generator);
  const auto result = dispatch("attention_varlen", call.backend, problem);
  if (recording::wanted() && !call.none) [[unlikely]] {
    for (size_t n = 0; n < problem.sequences->size(); ++n) {
      const auto one = kernels::sequence_of(problem, n);
      recording::attention(extras.caller, one, options, one.batch_offset);
    }
  }
  return {result.output.squeeze(0).transpose(0, 1),
          {},
          extras.logsumexp ? result.logsumexp.squeeze(0) : at::Tensor()};
}

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
  int64_t empty = 0, full = 0, tiles = 0;
  const auto add = [&](const kernels::Problem& one) {
    const auto blocks = kernels::native_cpu::blocks_of(one);
    if (!blocks) return;
    empty += blocks->classes.eq(BlockClasses::Empty).sum().item<int64_t>();
    full += blocks->classes.eq(BlockClasses::Full).sum().item<int64_t>();
    tiles += blocks->classes.numel();
  };
  if (problem.sequences && !problem.blocks) {
    for (size_t n = 0; n < problem.sequences->size(); ++n) add(kernels::sequence_of(problem, n));
  } else {
    add(problem);
  }
  if (tiles == 0)
    return fmt::format(
        "mask function {}: every pair is tested, since tiles are skipped from {} queries and keys on", name,
        2 * BlockClasses::kSize);
  return fmt::format("mask function {}: {} of {} tiles of {} x {} pairs are skipped, and {} need no test",
                     name, empty, tiles, BlockClasses::kSize, BlockClasses::kSize, full);
}

}  // namespace

Explanation explain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionOptions& options, const AttentionExtras& extras) {
  const auto problem = normalize("explain", q, k, v, options, extras).problem;
  auto explanation = explain_dispatch(options.backend, problem);
  if (problem.score) explanation.notes.push_back(fmt::format("score function {}", problem.score.name()));
  if (problem.q.is_meta()) return explanation;  // a mask without numbers
  const NormalTensorsGuard kept;
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

at::Tensor alibi_slopes(int64_t num_heads, at::Device device) {
  TORCH_CHECK_VALUE(num_heads > 0, "alibi_slopes: expected num_heads > 0, got ", num_heads);
  std::vector<float> slopes(num_heads);
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(num_heads)));
  for (int64_t h = 0; h < num_heads; ++h) {
    // Beyond the power of two, every other slope of twice as many heads.
    const double step = h < power ? static_cast<double>(h + 1) : static_cast<double>(h - power) + 0.5;
    slopes[h] = static_cast<float>(std::exp2(-8.0 * step / static_cast<double>(power)));
  }
  return at::tensor(slopes).to(device);
}

}  // namespace attentive
