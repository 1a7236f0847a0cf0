#include "kernels/native_cuda/backend.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>

#include "core/check.h"
#include "kernels/call_tensors.h"
#include "kernels/native_backward.h"
#include "kernels/reference/visibility.h"

namespace attentive::kernels::native_cuda {
namespace {

// The tensors that autograd saves for the backward pass.
struct SavedTensors {
  CallTensors of_call;
  at::Tensor scores, statistics;

  template <class Visit>
  void for_each(const Visit& visit) {
    of_call.for_each(visit);
    for (auto* tensor : {&scores, &statistics}) visit(*tensor);
  }
};

// State that the forward pass keeps besides.
struct Kept : torch::CustomClassHolder {
  const SoftmaxKernels* kernels = nullptr;
  Call call;                 // without tensors
  SavedTensors slots;        // without tensors after the forward pass
  at::DimVector bias_sizes;  // sizes of the bias before it was expanded
  bool clean = false;        // whether the clean weights are wanted
};

template <class T = void>
const T* in(const at::Tensor& x) {
  return x.defined() ? static_cast<const T*>(x.const_data_ptr()) : nullptr;
}

template <class T = void>
T* out(const at::Tensor& x) {
  return x.defined() ? static_cast<T*>(x.mutable_data_ptr()) : nullptr;
}

at::Tensor contiguous(const at::Tensor& x) {
  return x.defined() ? x.resolve_neg().contiguous() : x;
}

// Scores -> weights after dropout, logsumexp, and the clean weights if they are wanted. Bias and sinks are
// inputs so that autograd computes their gradients; the kernels read their numbers from the slots of `kept`.
class MaskedSoftmax : public torch::autograd::Function<MaskedSoftmax> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& scores,
                                                const std::optional<at::Tensor>& bias,
                                                const std::optional<at::Tensor>& sinks,
                                                const c10::intrusive_ptr<Kept>& kept) {
    context->set_materialize_grads(false);  // results without a gradient get an undefined one, not zeros
    const Call& call = kept->call;
    const auto floats = scores.options().dtype(at::kFloat);
    const auto dropped = at::empty_like(scores), logsumexp = at::empty({call.B, call.H, call.L}, floats),
               statistics = at::empty({call.B, call.H, call.L, 2}, floats);
    at::Tensor clean;  // a separate tensor only with dropout
    if (kept->clean && call.dropout) clean = at::empty_like(scores);
    const c10::DeviceGuard guard(scores.device());
    kept->kernels->forward(
        call, element_of(scores.scalar_type()),
        {in(scores), out(clean), out(dropped), out<float>(logsumexp), out<float>(statistics)});
    kept->slots.scores = scores;
    kept->slots.statistics = statistics;
    context->save_for_backward(save(kept->slots));
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    context->saved_data["bias"] = bias;  // for their place in the graph, even if their numbers change
    context->saved_data["sinks"] = sinks;
    torch::autograd::variable_list results = {dropped, logsumexp};
    if (kept->clean) results.push_back(call.dropout ? clean : dropped.clone());
    return results;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    auto saved = kept->slots;
    load(saved, context->get_saved_variables());
    auto inputs = gradients;
    inputs.push_back(saved.scores);
    for (const char* name : {"bias", "sinks"})
      inputs.push_back(context->saved_data[name].toOptional<at::Tensor>().value_or(at::Tensor()));
    return first_derivative(Backend::Native, inputs,
                            [&] { return gradients_of(context, *kept, saved, gradients); });
  }

 private:
  static torch::autograd::variable_list gradients_of(torch::autograd::AutogradContext* context,
                                                     const Kept& kept, SavedTensors& saved,
                                                     const torch::autograd::variable_list& gradients) {
    auto& masks = saved.of_call;
    Call call = kept.call;
    point_to(call, masks);
    // needs_input_grad indexes only the defined inputs.
    const bool wants_bias = masks.bias.defined() && context->needs_input_grad(1);
    const bool wants_sinks = masks.sinks.defined() && context->needs_input_grad(masks.bias.defined() ? 2 : 1);
    const auto scores = contiguous(saved.scores), statistics = contiguous(saved.statistics);
    const auto grad_dropped = contiguous(gradients[0]), grad_logsumexp = contiguous(gradients[1]),
               grad_clean = gradients.size() > 2 ? contiguous(gradients[2]) : at::Tensor();
    const auto grad_scores = at::empty_like(scores);
    at::Tensor grad_logits, sink_terms;
    if (wants_bias) grad_logits = at::empty_like(scores, scores.options().dtype(at::kFloat));
    if (wants_sinks) sink_terms = at::empty({call.B, call.H, call.L}, statistics.options());
    const c10::DeviceGuard guard(scores.device());
    kept.kernels->backward(
        call, element_of(scores.scalar_type()),
        {in(scores), in<float>(statistics), in(grad_clean), in(grad_dropped), in<float>(grad_logsumexp),
         out(grad_scores), out<float>(grad_logits), out<float>(sink_terms)});

    at::Tensor grad_bias, grad_sinks;
    if (wants_bias) grad_bias = grad_logits.sum_to_size(kept.bias_sizes);
    if (wants_sinks) grad_sinks = sink_terms.sum(at::IntArrayRef{0, 2});
    return {grad_scores, grad_bias, grad_sinks, at::Tensor()};
  }
};

}  // namespace

Verdict verdict(const Problem& problem) {
  if (!device_kernels()) return Verdict::no("this build has no CUDA code (ATTENTIVE_CUDA)");
  const auto type = problem.q.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf)
    return Verdict::no("it accepts only float32, bfloat16 and float16");
  if (problem.is_empty()) return Verdict::no("it does not accept empty inputs");
  if (problem.score) return Verdict::no("it takes no score function");
  if (problem.mask) return Verdict::no("it takes no mask function");
  if (!problem.normalise) return Verdict::no("it computes a softmax");
  if (problem.has_dropout() && problem.dropout_stream == DropoutStream::Aten)
    return Verdict::no("the Aten dropout stream cannot be drawn row by row");
  if (problem.dropout_p == 1.0) return Verdict::no("a dropout of 1 leaves nothing to compute");
  if (requires_gradient(problem.alibi_slopes))
    return Verdict::no("it computes no gradient for the ALiBi slopes");
  return {};
}

AttentionResult run(const Problem& problem) {
  return run_with(*device_kernels(), problem);
}

AttentionResult run_with(const SoftmaxKernels& kernels, const Problem& problem) {
  const auto kept = c10::make_intrusive<Kept>();
  kept->kernels = &kernels;
  kept->slots.of_call = mask_tensors_of(problem, Biases::Float32, requires_gradient(problem));
  kept->call = call_of(problem, dropout_key_of(problem));
  point_to(kept->call, kept->slots.of_call);
  kept->clean = problem.weights == Weights::Clean;
  if (problem.bias.defined()) kept->bias_sizes = problem.bias.sizes();
  auto k = problem.k, v = problem.v;
  if (problem.has_mask() || !problem.band.shows_every_key(problem.queries(), problem.keys())) {
    const auto visible = reference::visible_pairs(problem, {0, problem.queries(), 0, problem.keys()});
    k = without_unseen(k, visible, problem.kv_heads());
    v = without_unseen(v, visible, problem.kv_heads());
  }
  const auto scores = unstack_groups(
      at::matmul(stack_groups(problem.q, problem.kv_heads()), k.transpose(2, 3)), problem.heads());
  auto results =
      MaskedSoftmax::apply(scores.contiguous(), as_optional(problem.bias), as_optional(problem.sinks), kept);
  AttentionResult result;
  result.output =
      unstack_groups(at::matmul(stack_groups(results[0], problem.kv_heads()), v), problem.heads());
  if (problem.logsumexp) result.logsumexp = results[1];
  if (problem.weights == Weights::Dropped) result.weights = results[0];
  if (problem.weights == Weights::Clean) result.weights = results[2];
  return result;
}

}  // namespace attentive::kernels::native_cuda
