#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>

#include "kernels/native_backward.h"
#include "kernels/native_cpu/backend.h"
#include "kernels/reference/backend.h"

namespace attentive::kernels::native_cpu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The tensors that autograd saves for the backward pass.
struct SavedTensors {
  CallTensors of_call;
  at::Tensor output, statistics;
  at::Tensor bias;                  // as the caller gave it; undefined unless it requires a gradient
  std::vector<at::Tensor> learned;  // likewise: the captured tensors that require one

  template <class Visit>
  void for_each(const Visit& visit) {
    of_call.for_each(visit);
    for (auto* tensor : {&output, &statistics, &bias}) visit(*tensor);
    for (auto& tensor : learned) visit(tensor);
  }
};

// State that the forward pass keeps besides.
struct Kept : torch::CustomClassHolder {
  Problem options;              // without tensors
  Call call;                    // likewise
  SavedTensors slots;           // without tensors after the forward pass
  std::vector<size_t> learned;  // the indices of the captured tensors that autograd differentiates
  VersionWatch changes;         // detects changes of the output
  // Weights that were returned, which the backward pass reads if the caller still has them unchanged. Those
  // of a half type are rounded, so it does not.
  c10::weak_intrusive_ptr<c10::TensorImpl> weights{c10::intrusive_ptr<c10::TensorImpl>()};
  VersionWatch weight_changes;
  const void* weight_numbers = nullptr;  // the caller may have given the tensor other memory (set_data)

  void remember_weights(const at::Tensor& returned) {
    if (returned.scalar_type() != at::kFloat) return;
    weights = c10::weak_intrusive_ptr<c10::TensorImpl>(returned.getIntrusivePtr());
    weight_changes.watch(returned);
    weight_numbers = returned.const_data_ptr();
  }
  at::Tensor unchanged_weights() const {
    auto still = weights.lock();
    if (!still || weight_changes.any()) return {};
    at::Tensor found(std::move(still));
    return found.is_contiguous() && found.const_data_ptr() == weight_numbers ? found : at::Tensor();
  }
};

class NativeAttention : public torch::autograd::Function<NativeAttention> {
 public:
  // All tensors here are inputs so that autograd computes their gradients; the kernel reads their numbers
  // from the slots of `kept`. The results are the output, the logsumexp, and the weights if the options ask
  // for them.
  static variable_list forward(AutogradContext* context, const at::Tensor& /*q*/, const at::Tensor& /*k*/,
                               const at::Tensor& /*v*/, const std::optional<at::Tensor>& sinks,
                               const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& slopes,
                               const at::TensorList& learned, const c10::intrusive_ptr<Kept>& kept) {
    auto& slots = kept->slots;
    auto computed = compute(kept->call, slots.of_call,
                            {.logsumexp = true, .statistics = true, .weights = kept->options.weights});
    variable_list results{computed.output, computed.logsumexp};
    if (computed.weights.defined()) {
      results.push_back(computed.weights);
      kept->remember_weights(results.back());
    }
    kept->changes.watch(computed.output);
    slots.output = computed.output.variable_data();
    slots.statistics = std::move(computed.statistics);
    slots.bias = bias.value_or(at::Tensor());
    slots.learned = learned.vec();
    context->save_for_backward(save(slots));
    context->set_materialize_grads(false);  // zeros of the weights' size would cost O(L S) memory
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    // For their place in the graph, even if their numbers change.
    context->saved_data["sinks"] = sinks;
    context->saved_data["slopes"] = slopes;
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    Saved saved(context);
    if (std::none_of(incoming.begin(), incoming.end(), [](const auto& x) { return x.defined(); }))
      return gradients_of_inputs(saved, {});
    const AttentionResult of_results{incoming[0], incoming.size() > 2 ? incoming[2] : at::Tensor(),
                                     incoming[1]};
    return gradients_of_inputs(saved, at::GradMode::is_enabled() ? with_graph(saved, of_results)
                                                                 : by_kernel(context, saved, of_results));
  }

 private:
  struct Saved : SavedTensors {
    explicit Saved(AutogradContext* context)
        : kept(c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule())),
          call(kept->call),
          sinks(context->saved_data["sinks"].toOptional<at::Tensor>().value_or(at::Tensor())),
          slopes(context->saved_data["slopes"].toOptional<at::Tensor>().value_or(at::Tensor())) {
      static_cast<SavedTensors&>(*this) = kept->slots;
      load(*this, context->get_saved_variables());
      point_to(call, of_call);
    }

    c10::intrusive_ptr<Kept> kept;
    Call call;
    at::Tensor sinks, slopes;  // as the caller gave them
  };

  // One gradient for each argument of `forward` after the context.
  static variable_list gradients_of_inputs(const Saved& saved, const Gradients& found) {
    variable_list result{found.q, found.k, found.v, found.sinks, found.bias, found.alibi_slopes};
    for (size_t n = 0; n < saved.learned.size(); ++n) {
      const bool any = !found.captured.empty();
      result.push_back(any ? found.captured[saved.kept->learned[n]].to(saved.learned[n].scalar_type())
                           : at::Tensor());
    }
    result.emplace_back();  // of `kept`
    return result;
  }

  // A small tensor that the definition reads again: the caller's, if autograd needs its place in the graph,
  // which must still have the numbers of the forward pass.
  static at::Tensor unchanged(const char* name, const at::Tensor& given, const at::Tensor& copy) {
    if (!requires_gradient(given)) return copy;
    TORCH_CHECK(given.detach().to(at::kFloat).expand_as(copy).allclose(copy, 0, 0, /*equal_nan=*/true),
                "attention: ", name,
                " were changed in place after the forward pass; under create_graph, the backward pass reads "
                "them again");
    return given;
  }

  // Under create_graph: the kernel records no graph, so the definition computes these gradients.
  static Gradients with_graph(const Saved& saved, const AttentionResult& incoming) {
    const auto& in = saved.of_call;
    Problem problem = saved.kept->options;
    problem.q = in.q;
    problem.k = in.k;
    problem.v = in.v;
    problem.keep = in.keep;
    problem.bias = requires_gradient(saved.bias) ? saved.bias : in.bias;
    problem.alibi_slopes = unchanged("alibi_slopes", saved.slopes, in.slopes);
    problem.key_lengths = in.lengths;
    problem.sinks = unchanged("sinks", saved.sinks, in.sinks);
    // Tensors that do not learn are read as they were in the forward pass.
    for (const auto& input : in.captured) problem.captured.emplace_back(input.owner.get(), input.numbers);
    for (size_t n = 0; n < saved.learned.size(); ++n)
      problem.captured[saved.kept->learned[n]].second = saved.learned[n];
    return reference::gradients_with_graph(problem, incoming);
  }

  static Gradients by_kernel(AutogradContext* context, const Saved& saved,
                             const AttentionResult& of_results) {
    const auto& in = saved.of_call;
    Computed out{saved.output, {}, saved.statistics};
    if (saved.kept->changes.any()) out.output = compute(saved.call, in, {.statistics = true}).output;
    const auto incoming = incoming_of(of_results, out.output, saved.kept->options.weights);
    if (incoming.weights.defined()) out.weights = saved.kept->unchanged_weights();
    Wanted wanted;
    // needs_input_grad indexes only the defined inputs; the first three are q, k and v.
    auto needs = [&, input = size_t{3}](const at::Tensor& x) mutable {
      return x.defined() && context->needs_input_grad(input++);
    };
    wanted.sinks = needs(saved.sinks);
    if (needs(saved.bias)) wanted.want_bias(saved.bias, in.q.scalar_type());
    if (needs(saved.slopes)) wanted.slopes = saved.slopes.sizes();
    wanted.captured = !saved.learned.empty();
    return compute_gradients(saved.call, in, out, incoming, wanted);
  }
};

std::optional<at::Tensor> if_differentiable(const at::Tensor& x) {
  return requires_gradient(x) ? std::optional(x) : std::nullopt;
}

}  // namespace

std::vector<size_t> learned_captures(const Problem& problem) {
  std::vector<size_t> result;
  if (!problem.score) return result;
  const auto& of_score = problem.score.function()->captured();
  for (size_t n = 0; n < of_score.size(); ++n) {
    if (!of_score[n]->indices && requires_gradient(of_score[n]->tensor)) result.push_back(n);
  }
  return result;
}

AttentionResult run_with_autograd(const Problem& problem, PreparedCall prepared,
                                  std::vector<size_t> learned_indices) {
  const auto kept = c10::make_intrusive<Kept>();
  kept->options = without_tensors(problem);
  kept->call = prepared.call;
  kept->slots.of_call = std::move(prepared.tensors);
  kept->learned = std::move(learned_indices);
  const auto& in = kept->slots.of_call;
  std::vector<at::Tensor> learned;
  for (const size_t n : kept->learned) learned.push_back(in.captured[n].owner->tensor);
  const auto outputs = NativeAttention::apply(
      in.q, in.k, in.v, if_differentiable(problem.sinks), if_differentiable(problem.bias),
      if_differentiable(problem.alibi_slopes), at::TensorList(learned), kept);
  return {outputs[0], problem.weights != Weights::None ? outputs[2] : at::Tensor(),
          problem.logsumexp ? outputs[1] : at::Tensor()};
}

}  // namespace attentive::kernels::native_cpu
