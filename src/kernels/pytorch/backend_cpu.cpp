#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/core/ivalue.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include "core/check.h"
#include "kernels/native_backward.h"
#include "kernels/pytorch/aten_internals.h"
#include "kernels/pytorch/backend.h"
#include "kernels/reference/visibility.h"

namespace attentive::kernels::pytorch {
namespace {

// Before 2.11, with head_dim 1 and more than 64 queries, the kernel's gradients in half precision are wrong.
constexpr bool kHalfGradientsNeedTwoNumbers = TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 11;

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Kept : torch::CustomClassHolder {
  bool causal = false;
  std::optional<double> scale;
  VersionWatch changes;
};

// Returns k or v with strides that the kernel's matrix products accept: contiguous rows that do not overlap.
at::Tensor with_rows(const at::Tensor& x) {
  return x.stride(3) == 1 && (x.size(2) == 1 || x.stride(2) >= x.size(3)) ? x : x.contiguous();
}

// Returns q likewise. The kernel allocates its output by at::empty_like(q) and writes contiguous rows, so the
// last dimension must be innermost in the memory layout that empty_like infers from the strides of q.
at::Tensor with_innermost_rows(const at::Tensor& q) {
  for (int64_t d = 0; d < 3; ++d) {
    if (q.size(d) != 1 && q.stride(d) < q.size(3)) return q.contiguous();
  }
  return with_rows(q);
}

class FlashCpu : public torch::autograd::Function<FlashCpu> {
  struct Saved {
    enum : size_t { q, k, v, mask, output, logsumexp };
  };

 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const std::optional<at::Tensor>& mask, bool causal,
                               std::optional<double> scale) {
    const auto result = aten::flash_cpu(q, k, v, causal, mask, scale);
    auto kept = c10::make_intrusive<Kept>();
    kept->causal = causal;
    kept->scale = scale;
    kept->changes.watch(result.output);
    kept->changes.watch(result.logsumexp);
    context->save_for_backward({q, k, v, mask.value_or(at::Tensor()), result.output.variable_data(),
                                result.logsumexp.variable_data()});
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    context->mark_non_differentiable({result.logsumexp});
    return {result.output, result.logsumexp};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return first_derivative(Backend::Torch, {saved[Saved::q], saved[Saved::k], saved[Saved::v], gradients[0]},
                            [&] { return gradients_of(context, saved, gradients); });
  }

 private:
  static variable_list gradients_of(AutogradContext* context, const variable_list& saved,
                                    const variable_list& gradients) {
    // Hooks of saved tensors may have returned copies with other strides.
    const auto q = with_innermost_rows(saved[Saved::q]), k = with_rows(saved[Saved::k]),
               v = with_rows(saved[Saved::v]);
    auto mask = as_optional(saved[Saved::mask]);
    if (mask && mask->stride(3) > 1) mask = mask->contiguous();
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    auto result = aten::FusedResult{with_rows(saved[Saved::output]), saved[Saved::logsumexp]};
    if (kept->changes.any()) result = aten::flash_cpu(q, k, v, kept->causal, mask, kept->scale);
    const auto grads =
        aten::flash_cpu_backward(gradients[0], q, k, v, result, kept->causal, mask, kept->scale);
    return {grads[0], grads[1], grads[2], at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// The kernel under autograd. ATen's own graph saves the output for the backward pass and raises an error if
// the caller changes it in place; this one then recomputes it. The logsumexp has no gradient.
aten::FusedResult flash_cpu_in_graph(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     bool causal, const std::optional<at::Tensor>& mask,
                                     std::optional<double> scale) {
  const auto results = FlashCpu::apply(q, k, v, mask, causal, scale);
  return {results[0], results[1]};
}

// Whether the kernel's causal flag, which is aligned top-left, expresses the problem.
bool causal_by_flag(const Problem& problem) {
  return problem.band.hi == 0 && !problem.has_mask();
}

bool masked(const Problem& problem) {
  return problem.has_mask() || (problem.band.has_hi() && !causal_by_flag(problem));
}

// Combines all mask terms of the problem into one additive mask (B|1, H|1, L, S) of q's dtype.
at::Tensor combined_mask(const Problem& problem) {
  const auto visible = reference::visible_pairs(problem, {0, problem.queries(), 0, problem.keys()});
  const auto added =
      problem.bias.defined() ? problem.bias.detach() : at::zeros({1, 1, 1, 1}, problem.q.options());
  const auto mask = added.masked_fill(visible.bitwise_not(), -std::numeric_limits<double>::infinity());
  return mask.expand({mask.size(0), mask.size(1), problem.queries(), problem.keys()});
}

// Returns the largest |x|, or NaN or Inf if x holds one.
double magnitude(const at::Tensor& x) {
  // Reading in memory order takes one pass and no copy; (B, H, T, d) is often laid out as (B, T, H, d).
  const auto by_token = x.detach().transpose(1, 2);
  const auto [low, high] = at::aminmax(by_token.is_contiguous() ? by_token : x.detach());
  const double a = std::abs(low.item<double>()), b = std::abs(high.item<double>());
  return std::isnan(a) ? a : std::max(a, b);
}

double largest_of(const Problem& problem) {
  return problem.q.scalar_type() == at::kDouble ? std::numeric_limits<double>::max()
                                                : std::numeric_limits<float>::max();
}

// Whether every score is certain to be finite, before and after scaling and with any finite bias added. False
// if an input is NaN.
bool scores_stay_finite(const Problem& problem) {
  const double epsilon = problem.q.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                                : std::numeric_limits<float>::epsilon();
  const auto dim = static_cast<double>(problem.head_dim());
  const double scale = std::max(1.0, std::abs(problem.scale.value_or(1.0)));
  // The quarter is a margin for rounding. With a bias, scores must be so small that adding them to the
  // largest float does not change it.
  const double room = problem.bias.defined() ? epsilon / 4 : 0.25;
  return magnitude(problem.q) * magnitude(problem.k) <= largest_of(problem) * room / (dim * scale);
}

// Whether hidden keys and values are certain not to reach a result. The kernel adds -inf to hidden scores and
// multiplies hidden values by weights of 0, so every score, every value and, in a backward pass, every
// product of a value with the incoming gradient must be finite. The incoming gradient is not known yet and is
// assumed to be at most as large as the values.
bool products_stay_finite(const Problem& problem) {
  const double largest = largest_of(problem);
  const auto dim = static_cast<double>(problem.head_dim());
  return scores_stay_finite(problem) &&
         magnitude(problem.v) <= (needs_gradient(problem) ? std::sqrt(largest / 4 / dim) : largest);
}

template <class T>
bool looks_lost_as(const at::Tensor& sums, bool has_rows_without_keys) {
  const T* const sum = sums.const_data_ptr<T>();
  int64_t odd = 0;  // counting instead of returning early keeps branches out of the loop
  for (int64_t n = 0; n < sums.numel(); ++n) {
    odd += static_cast<int64_t>(!(std::abs(sum[n]) <= std::numeric_limits<T>::max()));
    odd += static_cast<int64_t>(sum[n] == T(0) && !has_rows_without_keys);
  }
  return odd > 0;
}

// Whether a logsumexp shows that its row may hold a score of NaN or Inf. The kernel returns 0 for a row whose
// scores are all -inf, and for a row without keys.
bool looks_lost(const at::Tensor& logsumexp, bool has_rows_without_keys) {
  const auto sums = logsumexp.is_non_overlapping_and_dense() ? logsumexp : logsumexp.contiguous();
  return sums.scalar_type() == at::kDouble ? looks_lost_as<double>(sums, has_rows_without_keys)
                                           : looks_lost_as<float>(sums, has_rows_without_keys);
}

}  // namespace

Verdict verdict_cpu(const Problem& problem) {
  if (problem.has_dropout()) return Verdict::no("its CPU kernel has no dropout");
  if (!problem.band.unbounded() && !problem.band.only_causal())
    return Verdict::no("its CPU kernel has no window and would visit every key");
  if (problem.alibi_slopes.defined()) return Verdict::no("its CPU kernel has no ALiBi");
  if (kHalfGradientsNeedTwoNumbers && problem.head_dim() == 1 && problem.q.element_size() == 2 &&
      needs_gradient(problem)) {
    return Verdict::no(
        "its CPU kernel's half-precision gradients for head_dim 1 are wrong before LibTorch 2.11");
  }
  if (problem.bias.defined()) {
    if (requires_gradient(problem.bias))
      return Verdict::no("its CPU kernel computes no gradient for the bias");
    if (problem.q.scalar_type() != problem.bias.scalar_type()) {
      return Verdict::no("its CPU kernel needs the bias to have the dtype of q");
    }
    if (needs_gradient(problem) && reference::has_huge_negative_rows(problem))
      return Verdict::no(std::string(reference::kHugeNegativeRows));
  }
  if (problem.scale.value_or(1.0) < 0.0 && causal_by_flag(problem)) {
    return Verdict::no(
        "its CPU kernel hides scores with -inf before scaling, and a negative scale turns that into +inf");
  }
  const bool unseen_keys = problem.band.key_hi(problem.queries() - 1, problem.keys()) < problem.keys();
  if ((masked(problem) || unseen_keys) && !products_stay_finite(problem)) {
    return Verdict::no(
        "q, k or v holds NaN or Inf, or numbers whose products may overflow, and its CPU kernel reads hidden "
        "scores before it masks them");
  }
  return {};
}

Outcome run_cpu(const Problem& problem) {
  std::optional<at::Tensor> mask;
  if (masked(problem)) mask = combined_mask(problem);
  const bool causal = causal_by_flag(problem);
  const auto kernel = needs_gradient(problem) ? flash_cpu_in_graph : aten::flash_cpu;
  const auto k = with_rows(problem.k), v = with_rows(problem.v);
  const auto call = [&](const at::Tensor& q, const std::optional<at::Tensor>& call_mask) {
    return kernel(with_innermost_rows(q), k, v, causal, call_mask, problem.scale);
  };
  // The kernel returns 0 for a row without keys, which must become -inf.
  const auto statistics = [&](const at::Tensor& logsumexp) {
    if (!masked(problem)) return logsumexp;
    const auto visible = reference::visible_pairs(problem, {0, problem.queries(), 0, problem.keys()});
    return logsumexp.masked_fill(visible.any(3).bitwise_not(), -std::numeric_limits<double>::infinity());
  };
  bool any_lost = false;
  const int64_t group = problem.heads() / problem.kv_heads();
  // One call computes the g-th query head of every group, so that no key is repeated.
  const auto heads_of = [&](const at::Tensor& x, int64_t g) {
    return x.size(1) == 1 || group == 1 ? x : x.unflatten(1, {problem.kv_heads(), group}).select(2, g);
  };
  std::vector<at::Tensor> outputs, logsumexps;
  for (int64_t g = 0; g < group; ++g) {
    const auto fused = call(heads_of(problem.q, g), mask ? std::optional(heads_of(*mask, g)) : mask);
    outputs.push_back(fused.output);
    logsumexps.push_back(fused.logsumexp);
    any_lost = any_lost || looks_lost(fused.logsumexp, masked(problem));
  }
  // If something is masked, verdict_cpu() has already checked the scores, so the cause is the bias.
  if (any_lost && (masked(problem) || !scores_stay_finite(problem))) {
    return {{},
            Verdict::no("q, k or bias holds NaN or Inf, or scores overflow, and its CPU kernel may make "
                        "finite numbers of such a row")};
  }
  const auto merged = [](const std::vector<at::Tensor>& heads) {
    return heads.size() == 1 ? heads[0] : at::stack(heads, 2).flatten(1, 2);
  };
  Outcome outcome;
  outcome.result.output = merged(outputs);
  if (problem.logsumexp) outcome.result.logsumexp = statistics(merged(logsumexps));
  return outcome;
}

Verdict verdict_after_all_cpu(const Problem& problem) {
  const bool finite_bias = !problem.bias.defined() || std::isfinite(magnitude(problem.bias));
  if (finite_bias && (masked(problem) || scores_stay_finite(problem))) return {};
  const at::NoGradGuard no_grad;
  return run_cpu(problem).verdict;
}

}  // namespace attentive::kernels::pytorch
