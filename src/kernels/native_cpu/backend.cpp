#include "kernels/native_cpu/backend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>

#include "core/check.h"
#include "kernels/native_backward.h"
#include "kernels/native_cpu/compute.h"
#include "kernels/reference/gradients.h"

namespace attentive::kernels::native_cpu {
namespace {

// State that the forward pass keeps for the backward pass.
struct SavedForBackward : torch::CustomClassHolder {
  Arguments arguments;  // its masks move to autograd in the forward pass
  Problem options;      // without tensors
  PreparedFunctions functions;
  std::vector<size_t> learned;  // the captured tensors that autograd differentiates
  VersionWatch changes;         // detects changes of the output
  // Weights that were returned, which the backward pass reads if the caller still has them unchanged. Those
  // of a half type are rounded, so it does not.
  c10::weak_intrusive_ptr<c10::TensorImpl> weights{c10::intrusive_ptr<c10::TensorImpl>()};
  VersionWatch weight_changes;

  void remember_weights(const at::Tensor& returned) {
    if (returned.scalar_type() != at::kFloat) return;
    weights = c10::weak_intrusive_ptr<c10::TensorImpl>(returned.getIntrusivePtr());
    weight_changes.watch(returned);
  }
  at::Tensor unchanged_weights() const {
    auto still = weights.lock();
    return still && !weight_changes.any() ? at::Tensor(std::move(still)) : at::Tensor();
  }
};

class NativeAttention : public torch::autograd::Function<NativeAttention> {
 public:
  // `sinks`, `bias`, `slopes` and `captured` are inputs so that autograd computes their gradients; the kernel
  // reads their numbers from `kept`. The results are the output, the logsumexp, and the weights if the
  // options ask for them.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                const std::optional<at::Tensor>& sinks,
                                                const std::optional<at::Tensor>& bias,
                                                const std::optional<at::Tensor>& slopes,
                                                const at::TensorList& captured,
                                                const c10::intrusive_ptr<SavedForBackward>& kept) {
    const auto call = call_of(kept->arguments.scalars, kept->arguments.masks, q.scalar_type(),
                              kept->functions, kept->options.normalise);
    const auto computed =
        compute(call, {q, k, v}, {.logsumexp = true, .statistics = true, .weights = kept->options.weights});
    torch::autograd::variable_list results{computed.output, computed.logsumexp};
    if (computed.weights.defined()) {
      results.push_back(computed.weights);
      kept->remember_weights(results.back());
    }
    kept->changes.watch(computed.output);
    auto saved = kept->arguments.with_masks({q, k, v, computed.output.variable_data(), computed.statistics});
    saved.push_back(bias.value_or(at::Tensor()));
    for (auto& input : kept->functions.captured) saved.push_back(std::exchange(input.numbers, {}));
    for (const auto& tensor : captured) saved.push_back(tensor);
    context->save_for_backward(std::move(saved));
    context->set_materialize_grads(false);  // zeros of the weights' size would cost O(L S) memory
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    // For their place in the graph, even if their numbers change.
    context->saved_data["sinks"] = sinks;
    context->saved_data["slopes"] = slopes;
    return results;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const Saved saved(context);
    const bool any =
        std::any_of(gradients.begin(), gradients.end(), [](const auto& x) { return x.defined(); });
    if (!any) return torch::autograd::variable_list(7 + saved.learned.size());
    return at::GradMode::is_enabled() ? gradients_with_graph(saved, gradients)
                                      : gradients_of(context, saved, gradients);
  }

 private:
  struct Saved {
    explicit Saved(torch::autograd::AutogradContext* context)
        : kept(c10::static_intrusive_pointer_cast<SavedForBackward>(context->saved_data["kept"].toCapsule())),
          sinks(context->saved_data["sinks"].toOptional<at::Tensor>().value_or(at::Tensor())),
          slopes(context->saved_data["slopes"].toOptional<at::Tensor>().value_or(at::Tensor())) {
      const auto tensors = context->get_saved_variables();
      in = {tensors[0], tensors[1], tensors[2]};
      out = {tensors[3], {}, tensors[4]};
      masks = MaskTensors::saved(&tensors[5]);
      bias = tensors[10];
      const auto count = kept->functions.captured.size();
      functions = kept->functions.with_numbers(tensors.data() + 11);
      learned.assign(tensors.begin() + 11 + static_cast<std::ptrdiff_t>(count), tensors.end());
    }

    Inputs in;
    Computed out;
    MaskTensors masks;
    at::Tensor bias;  // undefined unless it requires a gradient
    PreparedFunctions functions;
    std::vector<at::Tensor> learned;  // the captured tensors that require a gradient, as the caller gave them
    c10::intrusive_ptr<SavedForBackward> kept;
    at::Tensor sinks, slopes;  // as the caller gave them
  };

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
  static torch::autograd::variable_list gradients_with_graph(
      const Saved& saved, const torch::autograd::variable_list& gradients) {
    Problem problem = saved.kept->options;
    problem.q = saved.in.q;
    problem.k = saved.in.k;
    problem.v = saved.in.v;
    problem.keep = saved.masks.keep;
    problem.bias = requires_gradient(saved.bias) ? saved.bias : saved.masks.bias;
    problem.alibi_slopes = unchanged("alibi_slopes", saved.slopes, saved.masks.slopes);
    problem.key_lengths = saved.masks.lengths;
    problem.sinks = unchanged("sinks", saved.sinks, saved.masks.sinks);
    // Tensors that do not learn are read as they were in the forward pass.
    for (const auto& input : saved.functions.captured)
      problem.captured.emplace_back(input.owner.get(), input.numbers);
    for (size_t n = 0; n < saved.learned.size(); ++n)
      problem.captured[saved.kept->learned[n]].second = saved.learned[n];
    auto found = reference::gradients_with_graph(
        problem, {gradients[0], gradients.size() > 2 ? gradients[2] : at::Tensor(), gradients[1]});
    torch::autograd::variable_list result{found.q,     found.k,    found.v,
                                          found.sinks, found.bias, found.alibi_slopes};
    for (const size_t n : saved.kept->learned) result.push_back(found.captured[n]);
    result.emplace_back();
    return result;
  }

  static torch::autograd::variable_list gradients_of(torch::autograd::AutogradContext* context,
                                                     const Saved& saved,
                                                     const torch::autograd::variable_list& gradients) {
    const auto& in = saved.in;
    auto out = saved.out;
    const auto call = call_of(saved.kept->arguments.scalars, saved.masks, in.q.scalar_type(), saved.functions,
                              saved.kept->options.normalise);
    if (saved.kept->changes.any()) out.output = compute(call, in, {.statistics = true}).output;
    const auto incoming =
        incoming_of({gradients[0], gradients.size() > 2 ? gradients[2] : at::Tensor(), gradients[1]},
                    out.output, saved.kept->options.weights);
    if (incoming.weights.defined()) out.weights = saved.kept->unchanged_weights();
    Wanted wanted;
    // Autograd counts the inputs that are there.
    size_t input = 3;
    if (saved.sinks.defined()) wanted.sinks = context->needs_input_grad(input++);
    if (saved.bias.defined() && context->needs_input_grad(input++)) {
      wanted.want_bias(saved.bias, in.q.scalar_type());
    }
    if (saved.slopes.defined() && context->needs_input_grad(input++)) wanted.slopes = saved.slopes.sizes();
    if (!saved.learned.empty()) wanted.captured = &saved.functions;
    const auto found = compute_gradients(call, in, out, incoming, wanted);
    torch::autograd::variable_list result{found.q, found.k, found.v, found.sinks, found.bias, found.slopes};
    for (size_t n = 0; n < saved.learned.size(); ++n)
      result.push_back(found.captured[saved.kept->learned[n]].to(saved.learned[n].scalar_type()));
    result.emplace_back();
    return result;
  }
};

// The tensors of a problem that may require a gradient.
constexpr std::array kDifferentiable = {&Problem::q,     &Problem::k,    &Problem::v,
                                        &Problem::sinks, &Problem::bias, &Problem::alibi_slopes};

// The indices of the captured tensors that autograd differentiates: those of the score.
std::vector<size_t> learned_captures(const PreparedFunctions& functions) {
  std::vector<size_t> result;
  if (!functions.score) return result;
  const auto& of_score = functions.score.function()->captured();
  for (size_t n = 0; n < of_score.size(); ++n) {
    if (!of_score[n]->indices && requires_gradient(of_score[n]->tensor)) result.push_back(n);
  }
  return result;
}

bool differentiates(const Problem& problem) {
  return std::any_of(kDifferentiable.begin(), kDifferentiable.end(),
                     [&](auto tensor) { return requires_gradient(problem.*tensor); });
}

std::optional<at::Tensor> if_differentiable(const at::Tensor& x) {
  return requires_gradient(x) ? std::optional(x) : std::nullopt;
}

// The problem as the kernel computes it: with the classes of the mask's tiles, and without softmax, with a
// bias for every pair, since the gradients of a row's logits then do not add up to that of the logsumexp.
Problem with_blocks(const Problem& given) {
  Problem problem = given;
  if (!problem.normalise && problem.bias.defined() && problem.bias.size(3) == 1)
    problem.bias = problem.bias.expand({-1, -1, -1, problem.keys()});
  problem.blocks = blocks_of(problem);
  return problem;
}

// Whether float32 can represent the factor, its inverse and products with it.
bool is_moderate(const std::optional<double>& factor) {
  return !factor || (std::abs(*factor) >= 1e-30 && std::abs(*factor) <= 1e30);
}

}  // namespace

std::shared_ptr<const attentive::detail::BlockClasses> blocks_of(const Problem& problem) {
  constexpr int64_t kWorthClasses = 2 * attentive::detail::BlockClasses::kSize;
  const bool worth = problem.mask && problem.queries() >= kWorthClasses && problem.keys() >= kWorthClasses;
  return worth && !problem.blocks ? classify(problem) : problem.blocks;
}

Verdict verdict(const Problem& problem) {
  if (!problem.q.is_cpu()) return Verdict::no("it runs only on the CPU");
  const auto type = problem.q.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf)
    return Verdict::no("it accepts only float32, bfloat16 and float16");
  if (problem.is_empty()) return Verdict::no("it does not accept empty inputs");
  if (problem.has_dropout() && problem.dropout_stream == DropoutStream::Aten) {
    return Verdict::no("the Aten dropout stream cannot be drawn tile by tile");
  }
  if (problem.dropout_p == 1.0) return Verdict::no("a dropout of 1 leaves nothing to compute");
  if (!is_moderate(problem.scale)) return Verdict::no("it needs a scale between 1e-30 and 1e30");
  if (!is_moderate(problem.softcap)) return Verdict::no("it needs a softcap between 1e-30 and 1e30");
  for (const auto* function : {problem.score.function().get(), problem.mask.function().get()}) {
    if (!function) continue;
    for (const auto& captured : function->captured()) {
      if (!captured->in_place && captured->tensor.numel() > std::numeric_limits<int32_t>::max())
        return Verdict::no("it reads captured tensors of less than 2^31 numbers");
    }
  }
  return {};
}

AttentionResult run(const Problem& given) {
  const Problem problem = with_blocks(given);
  const auto kept = c10::make_intrusive<SavedForBackward>();
  kept->functions = PreparedFunctions(problem);
  kept->learned = learned_captures(kept->functions);
  const bool differentiated = differentiates(problem) || !kept->learned.empty();
  kept->options = without_tensors(problem);
  kept->options.dropout_key = dropout_key_of(problem);
  kept->arguments = arguments_of(problem, *kept->options.dropout_key, Biases::HalfTypes, differentiated);
  const auto in = inputs_of(problem);
  AttentionResult result;
  at::Tensor logsumexp;
  if (differentiated) {
    std::vector<at::Tensor> learned;
    for (const size_t n : kept->learned) learned.push_back(kept->functions.captured[n].owner->tensor);
    auto outputs = NativeAttention::apply(
        in.q, in.k, in.v, if_differentiable(problem.sinks), if_differentiable(problem.bias),
        if_differentiable(problem.alibi_slopes), at::TensorList(learned), kept);
    result.output = outputs[0];
    logsumexp = outputs[1];
    if (problem.weights != Weights::None) result.weights = outputs[2];
  } else {
    const auto call = call_of(kept->arguments.scalars, kept->arguments.masks, in.q.scalar_type(),
                              kept->functions, problem.normalise);
    auto computed = compute(call, in, {.logsumexp = problem.logsumexp, .weights = problem.weights});
    result.output = std::move(computed.output);
    result.weights = std::move(computed.weights);
    logsumexp = std::move(computed.logsumexp);
  }
  if (problem.logsumexp) result.logsumexp = logsumexp;
  return result;
}

}  // namespace attentive::kernels::native_cpu
