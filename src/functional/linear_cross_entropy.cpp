#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <attentive/functional/linear_cross_entropy.h>

#include "core/autocast_modes.h"
#include "core/check.h"
#include "functional/gradient_accumulator.h"
#include "functional/linear.h"

namespace attentive {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kLinearCrossEntropy = "linear_cross_entropy";

// The number of tokens whose logits exist at a time. Fewer would read the weight and its gradient from memory
// more often than the products can hide.
constexpr int64_t kLossTokens = 256;
// The number of logits to which elementwise operations are applied at a time, so that they find them in the
// caches.
constexpr int64_t kLossBlock = 1 << 20;

// A call without ignored tokens: hidden (N, width), weight (V, width), bias (V) or undefined, targets (N)
// int64.
struct Inputs {
  at::Tensor hidden, weight, bias, targets;
};

struct LossSettings {
  double label_smoothing, z_loss, softcap;  // softcap 0: none
  at::ScalarType products, sums;            // the dtypes of the operands of products, and of everything else
  at::ScalarType weight;                    // the dtype of the weight and of its gradient
};

struct Wanted {
  bool hidden = false, weight = false, bias = false;
  bool any() const { return hidden || weight || bias; }
};

// The gradients that are wanted, in the dtype of sums.
struct Gradients {
  at::Tensor hidden;
  GradientAccumulator weight;
  at::Tensor bias;
};

struct Pass {
  at::Tensor losses;  // (N)
  Gradients gradients;
};

Inputs for_products(Inputs inputs, const LossSettings& settings) {
  for (auto* x : {&inputs.hidden, &inputs.weight, &inputs.bias}) {
    if (x->defined()) *x = x->to(settings.products);
  }
  return inputs;
}

// Turns rows of logits, in the dtype of sums, into the gradients of their losses, if `gradients` is set, and
// returns the losses.
at::Tensor losses_of_rows(const at::Tensor& logits, const at::Tensor& targets, const LossSettings& settings,
                          bool gradients) {
  const auto vocabulary = static_cast<double>(logits.size(1));
  const double smoothing = settings.label_smoothing, z_loss = settings.z_loss, cap = settings.softcap;
  at::Tensor slope;
  if (cap != 0.0) {
    logits.div_(cap).tanh_();
    if (gradients) slope = logits.square().neg_().add_(1.0);
    logits.mul_(cap);
  }
  const auto index = targets.unsqueeze(1);
  const auto largest = logits.amax(1, /*keepdim=*/true);
  logits.sub_(largest);
  // The weights of the target and of its smoothing sum to 1, so the largest logit cancels.
  auto losses = logits.gather(1, index).mul_(smoothing - 1.0);
  if (smoothing > 0.0) losses.sub_(logits.sum(1, /*keepdim=*/true), smoothing / vocabulary);
  const auto sum = logits.exp_().sum(1, /*keepdim=*/true);
  const auto log_sum = sum.log();
  losses.add_(log_sum);
  auto factor = sum.reciprocal();
  if (z_loss > 0.0) {
    const auto logsumexp = largest + log_sum;
    losses.add_(logsumexp.square(), z_loss);
    factor.mul_(logsumexp.mul(2.0 * z_loss).add_(1.0));
  }
  if (gradients) {
    logits.mul_(factor);
    if (smoothing > 0.0) logits.sub_(smoothing / vocabulary);
    logits.scatter_add_(1, index, at::full({1, 1}, smoothing - 1.0, logits.options()).expand_as(index));
    if (slope.defined()) logits.mul_(slope);
  }
  return losses.squeeze(1);
}

// Does so for a chunk of logits in the dtype of products, and writes the losses.
void losses_of_chunk(const at::Tensor& logits, const at::Tensor& targets, const LossSettings& settings,
                     bool gradients, const at::Tensor& losses) {
  const auto rows = std::max<int64_t>(kLossBlock / logits.size(1), 1);
  for (int64_t row = 0; row < logits.size(0); row += rows) {
    const auto count = std::min(rows, logits.size(0) - row);
    const auto block = logits.narrow(0, row, count), wide = block.to(settings.sums);
    losses.narrow(0, row, count)
        .copy_(losses_of_rows(wide, targets.narrow(0, row, count), settings, gradients));
    if (gradients && !wide.is_same(block)) block.copy_(wide);
  }
}

// Computes the losses and the gradients of their weighted sum: the weight of token n is `factor`, times
// weights[n] if `weights` is defined. `inputs` are those of products.
Pass run_chunks(const Inputs& inputs, const LossSettings& settings, Wanted wanted, double factor,
                const at::Tensor& weights = {}) {
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto& [hidden, weight, bias, targets] = inputs;
  const auto tokens = hidden.size(0), vocabulary = weight.size(0), width = weight.size(1);
  const auto wide = hidden.options().dtype(settings.sums);
  Pass pass{at::empty({tokens}, wide), {}};
  auto& gradients = pass.gradients;
  if (wanted.hidden) gradients.hidden = at::empty({tokens, width}, wide);
  if (wanted.weight)
    gradients.weight = GradientAccumulator(vocabulary, width, hidden.options(), settings.weight);
  if (wanted.bias) gradients.bias = at::zeros({vocabulary}, wide);
  const auto buffer = at::empty({std::min(tokens, kLossTokens), vocabulary}, hidden.options());
  for (int64_t token = 0; token < tokens; token += kLossTokens) {
    const auto count = std::min(kLossTokens, tokens - token);
    auto rows = hidden.narrow(0, token, count);
    auto logits = buffer.narrow(0, 0, count);
    if (bias.defined()) {
      at::addmm_out(logits, bias, rows, weight.t());
    } else {
      at::mm_out(logits, rows, weight.t());
    }
    losses_of_chunk(logits, targets.narrow(0, token, count), settings, wanted.any(),
                    pass.losses.narrow(0, token, count));
    const auto weights_here = weights.defined() ? weights.narrow(0, token, count).unsqueeze(1) : at::Tensor();
    if (wanted.hidden) {
      auto out = gradients.hidden.narrow(0, token, count);
      if (settings.products == settings.sums) {
        at::mm_out(out, logits, weight);
      } else {
        out.copy_(at::mm(logits, weight));
      }
      if (factor != 1.0) out.mul_(factor);
      if (weights.defined()) out.mul_(weights_here);
    }
    if (weights.defined() && (wanted.weight || wanted.bias)) logits.mul_(weights_here);
    if (wanted.weight) gradients.weight.add(logits, rows, factor);
    if (wanted.bias) gradients.bias.add_(logits.sum(0, /*keepdim=*/false, settings.sums), factor);
  }
  return pass;
}

// The losses of all tokens (N), by operations that autograd records.
at::Tensor composed_losses(const Inputs& inputs, const LossSettings& settings) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto [hidden, weight, bias, targets] = for_products(inputs, settings);
  auto logits = at::linear(hidden, weight, as_optional(bias)).to(settings.sums);
  if (settings.softcap != 0.0) logits = logits.div(settings.softcap).tanh().mul(settings.softcap);
  const auto logsumexp = logits.logsumexp(1);
  auto losses =
      logsumexp - logits.gather(1, targets.unsqueeze(1)).squeeze(1) * (1.0 - settings.label_smoothing);
  if (settings.label_smoothing > 0.0) losses = losses - logits.mean(1) * settings.label_smoothing;
  if (settings.z_loss > 0.0) losses = losses + logsumexp.square() * settings.z_loss;
  return losses;
}

// Gradients that the forward pass has computed, until the backward pass takes them.
struct KeptGradients : torch::CustomClassHolder {
  LossSettings settings = {};
  std::optional<double> factor;  // of every token's loss in the result; none: the result is the losses
  at::Tensor targets;            // a copy: the caller may refill its own before the backward pass
  std::mutex mutex;
  Gradients gradients;
};

// The losses (N), or their sum times a factor, in the dtype of sums.
class LinearCrossEntropy : public torch::autograd::Function<LinearCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& targets,
                            const LossSettings& settings, std::optional<double> factor, Wanted wanted) {
    const Inputs inputs{hidden, weight, bias.value_or(at::Tensor()), targets};
    auto pass = run_chunks(for_products(inputs, settings), settings, factor ? wanted : Wanted(),
                           factor.value_or(1.0));
    if (wanted.any()) {
      const auto kept = c10::make_intrusive<KeptGradients>();
      kept->settings = settings;
      kept->factor = factor;
      kept->targets = targets.clone();
      kept->gradients = std::move(pass.gradients);
      context->saved_data["kept"] = c10::IValue::make_capsule(kept);
      context->save_for_backward({hidden, weight, inputs.bias});
    }
    return factor ? pass.losses.sum().mul_(*factor) : pass.losses;
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    const auto kept =
        c10::static_intrusive_pointer_cast<KeptGradients>(context->saved_data["kept"].toCapsule());
    const Wanted wanted{context->needs_input_grad(0), context->needs_input_grad(1),
                        context->needs_input_grad(2)};
    const auto gradients = at::GradMode::is_enabled() ? with_graph(context, *kept, wanted, incoming[0])
                                                      : without_graph(context, *kept, wanted, incoming[0]);
    return {gradients.hidden, gradients.weight, gradients.bias, {}, {}, {}, {}};
  }

 private:
  static Inputs saved_inputs(AutogradContext* context, const KeptGradients& kept) {
    const auto saved = context->get_saved_variables();
    return {saved[0], saved[1], saved[2], kept.targets};
  }

  // Takes those that the forward pass has computed; computes them again if an earlier backward pass has taken
  // them, and after LossReduction::None.
  static Inputs without_graph(AutogradContext* context, KeptGradients& kept, Wanted wanted,
                              const at::Tensor& incoming) {
    const auto inputs = saved_inputs(context, kept);
    Gradients gradients;
    {
      const std::lock_guard<std::mutex> lock(kept.mutex);
      gradients = std::exchange(kept.gradients, {});
    }
    const bool complete = (!wanted.hidden || gradients.hidden.defined()) &&
                          (!wanted.weight || gradients.weight.defined()) &&
                          (!wanted.bias || gradients.bias.defined());
    if (!complete) {
      const auto& settings = kept.settings;
      gradients = run_chunks(for_products(inputs, settings), settings, wanted, kept.factor.value_or(1.0),
                             kept.factor ? at::Tensor() : incoming)
                      .gradients;
    }
    // The losses of LossReduction::None have been weighted already.
    const bool once = !kept.factor || (incoming.is_cpu() && incoming.item<double>() == 1.0);
    const auto factor = once ? at::Tensor() : incoming;
    const auto finish = [&](const at::Tensor& gradient, const at::Tensor& input) {
      return (once ? gradient : gradient.mul_(factor)).to(input.scalar_type());
    };
    Inputs result;
    if (wanted.hidden) result.hidden = finish(gradients.hidden, inputs.hidden);
    if (wanted.weight) result.weight = gradients.weight.take(factor);
    if (wanted.bias) result.bias = finish(gradients.bias, inputs.bias);
    return result;
  }

  // Differentiates the composed losses, so that the gradients can be differentiated again.
  static Inputs with_graph(AutogradContext* context, const KeptGradients& kept, Wanted wanted,
                           const at::Tensor& incoming) {
    auto inputs = saved_inputs(context, kept);
    // One tensor may be several inputs; a view of each tells their gradients apart.
    variable_list leaves;
    const auto leaf = [&](at::Tensor& x, bool needed) {
      if (!needed) return;
      x = x.view_as(x);
      leaves.push_back(x);
    };
    leaf(inputs.hidden, wanted.hidden);
    leaf(inputs.weight, wanted.weight);
    leaf(inputs.bias, wanted.bias);
    auto result = composed_losses(inputs, kept.settings);
    if (kept.factor) result = result.sum() * *kept.factor;
    const auto found = torch::autograd::grad({result}, leaves, {incoming}, /*retain_graph=*/true,
                                             /*create_graph=*/true);
    Inputs gradients;
    size_t next = 0;
    if (wanted.hidden) gradients.hidden = found[next++];
    if (wanted.weight) gradients.weight = found[next++];
    if (wanted.bias) gradients.bias = found[next++];
    return gradients;
  }
};

void check_loss_call(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                     const LinearCrossEntropyOptions& options) {
  const auto* caller = kLinearCrossEntropy;
  const auto& bias = options.bias;
  check_floating(caller, "hidden", hidden);
  check_floating(caller, "weight", weight);
  check_defined(caller, "targets", targets);
  TORCH_CHECK_VALUE(weight.dim() == 2 && weight.size(0) > 0, caller,
                    ": expected weight of shape (vocabulary, width), got ", shape_string(weight.sizes()));
  TORCH_CHECK_VALUE(hidden.dim() >= 1 && hidden.size(-1) == weight.size(1), caller,
                    ": expected hidden of shape (..., ", weight.size(1), "), got ",
                    shape_string(hidden.sizes()));
  TORCH_CHECK_TYPE(at::isIntegralType(targets.scalar_type(), /*includeBool=*/false), caller,
                   ": expected targets as integers, got ", describe(targets));
  const auto leading = hidden.sizes().slice(0, static_cast<size_t>(hidden.dim() - 1));
  TORCH_CHECK_VALUE(targets.sizes() == leading, caller, ": expected targets of shape ", shape_string(leading),
                    ", got ", shape_string(targets.sizes()));
  const auto check_like_hidden = [&](const char* name, const at::Tensor& x) {
    TORCH_CHECK_VALUE(x.device() == hidden.device(), caller, ": expected ", name, " on ", hidden.device(),
                      " like hidden, got it on ", x.device());
    const auto computed = [&](const at::Tensor& y) { return autocast_type(y.scalar_type(), y.device()); };
    TORCH_CHECK_TYPE(computed(x) == computed(hidden), caller, ": expected ", name, " of dtype ",
                     hidden.scalar_type(), " like hidden, got ", x.scalar_type());
  };
  check_like_hidden("weight", weight);
  if (bias.defined()) {
    check_floating(caller, "bias", bias);
    TORCH_CHECK_VALUE(bias.dim() == 1 && bias.size(0) == weight.size(0), caller, ": expected bias of shape (",
                      weight.size(0), ",), got ", shape_string(bias.sizes()));
    check_like_hidden("bias", bias);
  }
  TORCH_CHECK_VALUE(targets.device() == hidden.device(), caller, ": expected targets on ", hidden.device(),
                    " like hidden, got them on ", targets.device());
  check_probability(caller, "label_smoothing", options.label_smoothing);
  TORCH_CHECK_VALUE(std::isfinite(options.z_loss) && options.z_loss >= 0.0, caller,
                    ": expected z_loss to be finite and not negative, got ", options.z_loss);
  const auto cap = options.softcap.value_or(1.0);
  TORCH_CHECK_VALUE(std::isfinite(cap) && cap > 0.0, caller, ": expected softcap > 0, got ", cap);
  TORCH_CHECK_VALUE(to_string(options.reduction) != "unknown", caller,
                    ": expected a reduction of LossReduction, got ", static_cast<int>(options.reduction));
}

void check_counted_targets(const at::Tensor& targets, int64_t vocabulary) {
  if (targets.numel() == 0) return;
  const auto [low, high] = at::aminmax(targets);
  const auto least = low.item<int64_t>(), most = high.item<int64_t>();
  TORCH_CHECK_VALUE(least >= 0 && most < vocabulary, kLinearCrossEntropy, ": expected targets in [0, ",
                    vocabulary, ") or ignore_index, got ", least < 0 ? least : most);
}

}  // namespace

std::string_view to_string(LossReduction value) {
  return enum_name(value, {"none", "mean", "sum"});
}

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                                const LinearCrossEntropyOptions& options) {
  check_loss_call(hidden, weight, targets, options);
  const auto vocabulary = weight.size(0);
  const auto given = autocast_type(hidden.scalar_type(), hidden.device());
  const auto sums = given == at::kDouble ? at::kDouble : at::kFloat;
  const LossSettings settings{.label_smoothing = options.label_smoothing,
                              .z_loss = options.z_loss,
                              .softcap = options.softcap.value_or(0.0),
                              .products = hidden.is_cpu() && widens_products(given) ? at::kFloat : given,
                              .sums = sums,
                              .weight = weight.scalar_type()};

  auto rows = hidden.reshape({-1, weight.size(1)});
  auto counted = targets.reshape(-1).to(at::kLong);
  const auto tokens = counted.size(0);
  const auto places = counted.ne(options.ignore_index).nonzero().squeeze(1);
  const bool some_ignored = places.size(0) < tokens;
  if (some_ignored) {
    rows = rows.index_select(0, places);
    counted = counted.index_select(0, places);
  }
  check_counted_targets(counted, vocabulary);

  const bool by_token = options.reduction == LossReduction::None;
  std::optional<double> factor;
  if (options.reduction == LossReduction::Sum) factor = 1.0;
  if (options.reduction == LossReduction::Mean) factor = 1.0 / static_cast<double>(counted.size(0));

  const Inputs inputs{rows, weight, options.bias, counted};
  at::Tensor result;
  if (is_not_subclass(rows) && is_not_subclass(weight) && is_not_subclass(options.bias)) {
    const auto needs = [](const at::Tensor& x) {
      return at::GradMode::is_enabled() && x.defined() && x.requires_grad();
    };
    result = LinearCrossEntropy::apply(rows, weight, as_optional(options.bias), counted, settings, factor,
                                       Wanted{needs(rows), needs(weight), needs(options.bias)});
  } else {
    result = composed_losses(inputs, settings);
    if (factor) result = result.sum() * *factor;
  }
  if (by_token && some_ignored) result = at::zeros({tokens}, result.options()).index_copy(0, places, result);
  if (by_token) result = result.reshape(targets.sizes());
  return result;
}

}  // namespace attentive
