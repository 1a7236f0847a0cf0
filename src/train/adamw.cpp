#include <cmath>
#include <unordered_set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <attentive/train/adamw.h>

#include "core/check.h"
#include "core/kept_tensors.h"
#include "io/state_fit.h"

namespace attentive {
namespace {

constexpr const char* kWho = "AdamW";

// What the kernel refuses is refused by name, before the first parameter moves.
void check_gradient(const std::string& name, const at::Tensor& parameter, const at::Tensor& moment) {
  TORCH_CHECK_VALUE(parameter.scalar_type() == moment.scalar_type() && parameter.device() == moment.device(),
                    kWho, ": expected \"", name, "\" as ", moment.scalar_type(), " on ", moment.device(),
                    " as when it was built, got ", parameter.scalar_type(), " on ", parameter.device(),
                    "; build it after to(device, dtype)");
  const auto& gradient = parameter.grad();
  if (!gradient.defined()) return;
  TORCH_CHECK_VALUE(gradient.layout() == at::kStrided, kWho, ": expected a dense gradient of \"", name,
                    "\", got a sparse one");
  TORCH_CHECK_VALUE(gradient.sizes() == parameter.sizes() && gradient.device() == parameter.device() &&
                        gradient.scalar_type() == parameter.scalar_type(),
                    kWho, ": expected a gradient of \"", name, "\" like the parameter, ", describe(parameter),
                    ", got ", describe(gradient));
}

void check(const AdamWOptions& options) {
  const auto at_least_zero = [](const char* name, double value) {
    TORCH_CHECK_VALUE(std::isfinite(value) && value >= 0.0, kWho, ": expected ", name, " >= 0, got ", value);
  };
  at_least_zero("learning_rate", options.learning_rate);
  at_least_zero("eps", options.eps);
  at_least_zero("weight_decay", options.weight_decay);
  TORCH_CHECK_VALUE(
      options.beta1 >= 0.0 && options.beta1 < 1.0 && options.beta2 >= 0.0 && options.beta2 < 1.0, kWho,
      ": expected beta1 and beta2 in [0, 1), got ", options.beta1, " and ", options.beta2);
}

}  // namespace

DecayGroups decay_groups(const torch::nn::Module& module) {
  DecayGroups groups;
  std::unordered_set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    const auto& parameter = item.value();
    if (!parameter.requires_grad() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    const bool decays = parameter.dim() >= 2;
    (decays ? groups.decayed_names : groups.plain_names).push_back(item.key());
    (decays ? groups.decayed : groups.plain).push_back(parameter);
  }
  return groups;
}

AdamW::AdamW(const torch::nn::Module& module, AdamWOptions options_) : options(options_) {
  check(options);
  auto found = decay_groups(module);
  TORCH_CHECK_VALUE(!found.decayed.empty() || !found.plain.empty(), kWho,
                    ": expected a module with trainable parameters, got none");
  const KeptTensors kept;
  groups_.push_back({true, std::move(found.decayed_names), std::move(found.decayed), {}, {}});
  groups_.push_back({false, std::move(found.plain_names), std::move(found.plain), {}, {}});
  for (auto& group : groups_) {
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const auto& parameter = group.parameters[i];
      TORCH_CHECK_TYPE(parameter.layout() == at::kStrided && at::isFloatingType(parameter.scalar_type()),
                       kWho, ": expected dense floating parameters, got \"", group.names[i], "\", a ",
                       describe(parameter));
      reserving(kWho, "its state", [&] {
        group.exp_avgs.push_back(at::zeros_like(parameter, at::MemoryFormat::Preserve).detach());
        group.exp_avg_sqs.push_back(at::zeros_like(parameter, at::MemoryFormat::Preserve).detach());
      });
    }
  }
  const auto& first = groups_[0].parameters.empty() ? groups_[1].parameters[0] : groups_[0].parameters[0];
  step_ = at::zeros({}, first.options().dtype(at::kFloat).requires_grad(false));
}

void AdamW::zero_grad() {
  for (auto& group : groups_) {
    for (auto& parameter : group.parameters) parameter.mutable_grad().reset();
  }
}

at::Tensor AdamW::clip(double max_norm) {
  TORCH_CHECK_VALUE(max_norm >= 0.0, kWho, ": expected max_norm >= 0, got ", max_norm);
  check_gradients();
  const KeptTensors kept;  // the next step may be taken in another mode
  std::vector<at::Tensor> gradients;
  for (const auto& group : groups_) {
    for (const auto& parameter : group.parameters) {
      if (parameter.grad().defined()) gradients.push_back(parameter.grad().resolve_neg());
    }
  }
  if (gradients.empty()) return at::zeros({}, step_.options());
  auto norms = at::_foreach_norm(gradients, 2);
  const auto norm = at::linalg_vector_norm(at::stack(norms), 2).to(at::kFloat);
  scale_ = max_norm > 0.0 ? (norm / max_norm).clamp_min_(1.0) : at::Tensor();
  return norm;
}

void AdamW::check_gradients() const {
  for (const auto& group : groups_) {
    for (size_t i = 0; i < group.parameters.size(); ++i)
      check_gradient(group.names[i], group.parameters[i], group.exp_avgs[i]);
  }
}

void AdamW::step() {
  check(options);
  check_gradients();
  const at::NoGradGuard no_grad;
  step_.add_(1);
  for (const auto& group : groups_) step_group(group);
  scale_.reset();
}

void AdamW::step_group(const Group& group) {
  std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs;
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    if (!group.parameters[i].grad().defined()) continue;
    parameters.push_back(group.parameters[i]);
    gradients.push_back(group.parameters[i].grad().resolve_neg());
    exp_avgs.push_back(group.exp_avgs[i]);
    exp_avg_sqs.push_back(group.exp_avg_sqs[i]);
  }
  if (parameters.empty()) return;
  const std::vector<at::Tensor> steps(parameters.size(), step_);
  at::_fused_adamw_(parameters, gradients, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps,
                    options.learning_rate, options.beta1, options.beta2,
                    group.decays ? options.weight_decay : 0.0, options.eps, /*amsgrad=*/false,
                    /*maximize=*/false, scale_.defined() ? std::optional(scale_) : std::nullopt);
}

StateDict AdamW::state() const {
  StateDict state{{"step", step_}};
  for (const auto& group : groups_) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      state["exp_avg." + group.names[i]] = group.exp_avgs[i];
      state["exp_avg_sq." + group.names[i]] = group.exp_avg_sqs[i];
    }
  }
  return state;
}

void AdamW::check_state(const StateDict& saved) const {
  const auto own = state();
  for (const auto& [name, tensor] : own) {
    const auto found = saved.find(name);
    TORCH_CHECK_VALUE(found != saved.end(), kWho, ": expected the state \"", name, "\", got none");
    TORCH_CHECK_VALUE(found->second.defined(), kWho, ": expected \"", name,
                      "\" to be a tensor, got an undefined one");
    const auto reason = refuse_tensor(found->second, tensor);
    TORCH_CHECK_VALUE(reason.empty(), kWho, ": \"", name, "\": ", reason);
    TORCH_CHECK_VALUE(found->second.scalar_type() == tensor.scalar_type(), kWho, ": expected \"", name,
                      "\" of dtype ", tensor.scalar_type(), ", got ", found->second.scalar_type());
  }
  for (const auto& item : saved) {
    TORCH_CHECK_VALUE(own.contains(item.first), kWho, ": expected no state \"", item.first, "\"");
  }
  const auto steps = saved.at("step").item<float>();
  TORCH_CHECK_VALUE(std::isfinite(steps) && steps >= 0, kWho, ": expected step >= 0, got ", steps);
}

void AdamW::load_state(const StateDict& saved) {
  check_state(saved);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state()) tensor.copy_(saved.at(name));
}

int64_t AdamW::steps() const {
  return static_cast<int64_t>(step_.item<float>());
}

}  // namespace attentive
