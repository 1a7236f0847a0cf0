#include "parity/case_compute.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/core/options.h>
#include <attentive/files/state_dict.h>

#include "parity/case_arguments.h"

namespace attentive {
namespace {

bool is_mask(const std::string& input) {
  return input.size() >= 4 && input.compare(input.size() - 4, 4, "mask") == 0;
}

// Works like Python's torch.autocast; without a dtype, disables autocast.
class AutocastGuard {
 public:
  AutocastGuard(at::DeviceType device, std::optional<at::ScalarType> type)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        previous_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_enabled(device, type.has_value());
    if (type) at::autocast::set_autocast_dtype(device, *type);
    at::autocast::increment_nesting();
  }
  ~AutocastGuard() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, previous_);
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_;
  at::ScalarType previous_;
};

CaseRunner build(const CasePlan& plan, const CaseArithmetic& arithmetic, bool train, CaseResults& results) {
  const auto& test_case = plan.test_case;
  if (test_case.init_seed) at::manual_seed(*test_case.init_seed);
  auto runner = plan.entry.build(plan.options, arithmetic.backend);
  if (!runner.module) {
    if (!test_case.state.empty()) fail_case(test_case.name, fmt::format("{} has no state", test_case.module));
    return runner;
  }
  if (test_case.init_seed) {
    for (const auto& [key, fresh] : state_dict(*runner.module)) results.initial.emplace(key, fresh.clone());
    results.normal = runner.normal;
  }
  runner.module->to(dtype_of(test_case));
  load_state_dict(*runner.module, test_case.state);
  runner.module->to(arithmetic.dtype);
  runner.module->to(arithmetic.device);
  runner.module->train(train);
  return runner;
}

// Makes autograd leaves on the device, in the dtype of the arithmetic. A mask keeps its dtype, as in PyTorch.
std::map<std::string, at::Tensor> make_leaves(const Case& test_case, const CaseArithmetic& arithmetic) {
  std::map<std::string, at::Tensor> leaves;
  for (const auto& [name, tensor] : test_case.inputs) {
    auto leaf = tensor.detach().clone().to(arithmetic.device);
    const bool keeps = arithmetic.dtype != at::kDouble && (arithmetic.autocast || is_mask(name));
    if (leaf.is_floating_point() && !keeps) leaf = leaf.to(arithmetic.dtype);
    if (test_case.input_gradients.count(name)) {
      if (!leaf.is_floating_point()) {
        fail_case(test_case.name, fmt::format("grad.input.{}: input.{} is not floating", name, name));
      }
      leaf.requires_grad_();
    }
    leaves.emplace(name, std::move(leaf));
  }
  for (const auto& [name, gradient] : test_case.input_gradients) {
    if (!leaves.count(name))
      fail_case(test_case.name, fmt::format("grad.input.{}: missing tensor input.{}", name, name));
  }
  return leaves;
}

std::map<std::string, at::Tensor> differentiate(const Case& test_case, const at::Tensor& output,
                                                const std::map<std::string, at::Tensor>& leaves,
                                                const torch::nn::Module* module) {
  std::vector<std::string> names;
  std::vector<at::Tensor> sources;
  for (const auto& [name, want] : test_case.input_gradients) {
    names.push_back("grad.input." + name);
    sources.push_back(leaves.at(name));
  }
  for (const auto& [key, want] : test_case.state_gradients) {
    const auto parameters =
        module ? module->named_parameters() : torch::OrderedDict<std::string, at::Tensor>();
    const auto* parameter = parameters.find(key);
    if (!parameter)
      fail_case(test_case.name,
                fmt::format("grad.state.{}: {} has no such parameter", key, test_case.module));
    names.push_back("grad.state." + key);
    sources.push_back(*parameter);
  }
  if (names.empty()) return {};
  if (!output.requires_grad()) fail_case(test_case.name, "gradients are expected, but the output has none");
  auto seed = at::ones_like(output);
  if (test_case.grad_output.defined()) {
    if (test_case.grad_output.sizes() != output.sizes()) {
      fail_case(test_case.name, "input.grad_output has another shape than the output");
    }
    seed = test_case.grad_output.to(output.options());
  }
  const auto found = torch::autograd::grad({output}, sources, {seed}, /*retain_graph=*/std::nullopt,
                                           /*create_graph=*/false, /*allow_unused=*/true);
  std::map<std::string, at::Tensor> gradients;
  for (size_t i = 0; i < names.size(); ++i)
    gradients.emplace(names[i], found[i].defined() ? found[i] : at::zeros_like(sources[i]));
  return gradients;
}

// Runs a case without dropout. `look` is called with the module (null for a function) before the call.
CaseOutput run_clean(const CasePlan& plan, const CaseArithmetic& arithmetic, Weights which,
                     const std::function<void(const torch::nn::Module*)>& look) {
  CaseResults unused;
  const auto runner = build(plan, arithmetic, /*train=*/false, unused);
  const at::NoGradGuard no_grad;
  const AutocastGuard autocast(arithmetic.device.type(), arithmetic.autocast);
  const CaseInputs inputs(plan.test_case.name, make_leaves(plan.test_case, arithmetic));
  look(runner.module.get());
  return runner.forward(inputs, plan.call, which);
}

}  // namespace

CasePlan::CasePlan(const Case& given)
    : test_case(given),
      options(given.name, "option", given.options),
      call(given.name, "call argument", given.call),
      entry(find_case_module(given, options, call)) {}

at::ScalarType dtype_of(const Case& test_case) {
  std::optional<at::ScalarType> found;
  const auto scan = [&](const std::map<std::string, at::Tensor>& tensors, std::string_view prefix) {
    for (const auto& [name, tensor] : tensors) {
      if (!tensor.is_floating_point() || (prefix == "input." && is_mask(name))) continue;
      if (found.value_or(tensor.scalar_type()) != tensor.scalar_type()) {
        fail_case(test_case.name,
                  fmt::format("expected one floating dtype, got {} and {} ({}{})", c10::toString(*found),
                              c10::toString(tensor.scalar_type()), prefix, name));
      }
      found = tensor.scalar_type();
    }
  };
  scan(test_case.state, "state.");
  if (!found && !test_case.autocast) scan(test_case.inputs, "input.");
  const auto dtype = found.value_or(at::kFloat);
  if (dtype != at::kFloat && dtype != at::kDouble && dtype != at::kBFloat16 && dtype != at::kHalf) {
    fail_case(test_case.name,
              fmt::format("expected float64, float32, bfloat16 or float16, got {}", c10::toString(dtype)));
  }
  return dtype;
}

CaseResults compute_case(const CasePlan& plan, const CaseArithmetic& arithmetic) {
  const auto& test_case = plan.test_case;
  const AutocastGuard no_autocast(arithmetic.device.type(), std::nullopt);
  CaseResults results;
  const auto runner = build(plan, arithmetic, test_case.train, results);
  const auto leaves = make_leaves(test_case, arithmetic);

  const at::AutoGradMode grad_mode(test_case.grads);
  const DropoutStreamGuard stream(DropoutStream::Aten);
  if (test_case.forward_seed) at::manual_seed(*test_case.forward_seed);
  const auto before = at::detail::getDefaultCPUGenerator().get_state();
  {
    const AutocastGuard autocast(arithmetic.device.type(), arithmetic.autocast);
    results.output = runner.forward(CaseInputs(test_case.name, leaves), plan.call,
                                    test_case.expected_weights.defined() ? Weights::Dropped : Weights::None);
  }
  if (!test_case.forward_seed && !before.equal(at::detail::getDefaultCPUGenerator().get_state())) {
    fail_case(test_case.name, "missing metadata forward_seed: the call draws random numbers (dropout)");
  }
  results.gradients = differentiate(test_case, results.output.output, leaves, runner.module.get());
  results.empty_output = runner.output_bias.empty() ? at::zeros({}, at::kDouble)
                                                    : state_dict(*runner.module).at(runner.output_bias);
  results.sequence_first = runner.sequence_first;
  return results;
}

at::Tensor clean_weights(const CasePlan& plan, CaseArithmetic arithmetic) {
  arithmetic.backend = Backend::Auto;
  return run_clean(plan, arithmetic, Weights::Clean, [](const torch::nn::Module*) {}).weights;
}

std::vector<RecordedAttention> clean_calls(const CasePlan& plan, const CaseArithmetic& arithmetic,
                                           const AttentionRecorderOptions& options) {
  std::optional<AttentionRecorder> recorder;
  run_clean(plan, arithmetic, Weights::None, [&](const torch::nn::Module* module) {
    if (module) {
      recorder.emplace(*module, options);
    } else {
      recorder.emplace(options);
    }
  });
  return recorder->calls();
}

}  // namespace attentive
