#include <algorithm>
#include <cmath>

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/core/guards.h>
#include <attentive/io/case.h>
#include <attentive/io/state_dict.h>
#include <attentive/modules/module.h>

#include "io/case_compare.h"
#include "io/case_modules.h"

namespace attentive {
namespace {

// PyTorch hands Bernoulli draws to MKL where it was built with it and the processor is an Intel one, so a
// seed gives two different masks. One known mask tells them apart.
std::string this_dropout_path() {
  const RandomStateGuard guard;
  at::manual_seed(123);
  const auto row = at::dropout(at::ones({6, 6}, at::kFloat), 0.5, /*train=*/true)[0];
  const auto equals = [&](std::initializer_list<float> numbers) {
    return std::equal(numbers.begin(), numbers.end(), row.const_data_ptr<float>());
  };
  return equals({2, 2, 0, 2, 2, 0}) ? "default" : equals({2, 2, 2, 2, 2, 2}) ? "intel_mkl" : "unknown";
}

std::string why_skipped(const Case& test_case, const CaseSettings& settings) {
  if (test_case.dropout_path.empty()) return {};
  if (!settings.device.is_cpu())
    return "its dropout was drawn on the CPU, and another device draws another stream";
  const auto ours = this_dropout_path();
  if (ours == test_case.dropout_path) return {};
  return fmt::format("its dropout was drawn from PyTorch's stream \"{}\", and this machine draws \"{}\"",
                     test_case.dropout_path, ours);
}

// The dtype of the arithmetic: of the state, else of the inputs.
at::ScalarType dtype_of(const Case& test_case) {
  std::optional<at::ScalarType> found;
  const auto scan = [&](const std::map<std::string, at::Tensor>& tensors, std::string_view prefix) {
    for (const auto& [name, tensor] : tensors) {
      if (!tensor.is_floating_point() || (prefix == "input." && name == "mask")) continue;
      if (found.value_or(tensor.scalar_type()) != tensor.scalar_type()) {
        fail_case(test_case.name,
                  fmt::format("expected one floating dtype, got {} and {} ({}{})", c10::toString(*found),
                              c10::toString(tensor.scalar_type()), prefix, name));
      }
      found = tensor.scalar_type();
    }
  };
  scan(test_case.state, "state.");
  if (!found) scan(test_case.inputs, "input.");
  const auto dtype = found.value_or(at::kFloat);
  if (dtype != at::kFloat && dtype != at::kDouble && dtype != at::kBFloat16 && dtype != at::kHalf) {
    fail_case(test_case.name,
              fmt::format("expected float64, float32, bfloat16 or float16, got {}", c10::toString(dtype)));
  }
  return dtype;
}

// Weights drawn from the seed must be the file's, bit for bit. Without AVX2, ATen itself rounds 1 ulp
// differently.
void compare_initial(const Case& test_case, const torch::nn::Module& module, at::ScalarType dtype,
                     CaseReport& report) {
  const bool exact = at::get_cpu_capability() != "DEFAULT";
  for (const auto& [key, fresh] : state_dict(module)) {
    const auto want = test_case.state.find(key);
    if (want == test_case.state.end()) continue;  // load_state_dict names it
    auto row = compare_tensors("init." + key, fresh.to(dtype), want->second, 0.0);
    if (!exact && row.note.empty() && dtype == at::kFloat) {
      row.passed = largest_ulp(fresh, want->second) <= 2;
      row.note = "this processor lacks AVX2: 2 ulp allowed";
    }
    report.tensors.push_back(std::move(row));
  }
}

CaseRunner build(const Case& test_case, const CaseModule& entry, const CaseArguments& options,
                 Backend backend, const CaseSettings& settings, CaseReport& report, bool compare_seed) {
  if (test_case.init_seed) at::manual_seed(*test_case.init_seed);
  auto runner = entry.build(options, backend);
  if (!runner.module) {
    if (!test_case.state.empty()) fail_case(test_case.name, fmt::format("{} has no state", test_case.module));
    return runner;
  }
  if (compare_seed && test_case.init_seed) compare_initial(test_case, *runner.module, report.dtype, report);
  runner.module->to(report.dtype);
  load_state_dict(*runner.module, test_case.state);
  runner.module->to(settings.device);
  runner.module->train(test_case.train);
  return runner;
}

// Leaves on the device, in the dtype of the arithmetic; a notebook's mask keeps its own, whatever it is.
std::map<std::string, at::Tensor> make_leaves(const Case& test_case, at::ScalarType dtype,
                                              at::Device device) {
  std::map<std::string, at::Tensor> leaves;
  for (const auto& [name, tensor] : test_case.inputs) {
    auto leaf = tensor.detach().clone().to(device);
    if (leaf.is_floating_point() && name != "mask") leaf = leaf.to(dtype);
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

CaseTolerance tolerance_of(const CaseSettings& settings, at::ScalarType dtype, bool gradient) {
  auto tolerance = case_tolerance(dtype, gradient);
  tolerance.atol = settings.atol.value_or(tolerance.atol);
  tolerance.rtol = settings.rtol.value_or(tolerance.rtol);
  return tolerance;
}

// Which queries have no key, for each row of `want`, from our clean weights (..., S): a row of weights sums
// to one, or is zero. Weights by head beside rows that stand for all heads: a row is empty if no head has a
// key.
at::Tensor empty_rows(const at::Tensor& clean_weights, int64_t want_rank, bool sequence_first) {
  auto empty = clean_weights.eq(0).all(-1);
  while (empty.dim() > want_rank - 1) empty = empty.all(-2);
  return sequence_first && empty.dim() == 2 ? empty.t() : empty;
}

// Compares one of `expected.*`; `empty` and `convention` say where PyTorch's NaN is allowed and what ours
// must be there.
void compare_expected(const std::string& name, const at::Tensor& got, at::Tensor want,
                      const at::Tensor& empty, const at::Tensor& convention, CaseTolerance tolerance,
                      CaseReport& report) {
  int64_t rows = 0;
  if (empty.defined() && got.sizes() == want.sizes())
    want = replace_empty_rows(want, empty, convention, rows);
  auto row = compare_tensors(name, got, want, tolerance.atol + tolerance.rtol * largest(want));
  if (rows > 0) {
    if (!row.note.empty()) row.note += "; ";
    row.note +=
        fmt::format("{} row{} without keys: NaN in PyTorch, {} here by convention", rows,
                    rows == 1 ? "" : "s", convention.dim() == 0 ? "zero" : "the output projection's bias");
  }
  report.tensors.push_back(std::move(row));
}

void compare_gradients(const Case& test_case, const CaseSettings& settings, const at::Tensor& output,
                       const std::map<std::string, at::Tensor>& leaves, const torch::nn::Module* module,
                       CaseReport& report) {
  std::vector<std::string> names;
  std::vector<at::Tensor> sources, wants;
  for (const auto& [name, want] : test_case.input_gradients) {
    names.push_back("grad.input." + name);
    sources.push_back(leaves.at(name));
    wants.push_back(want);
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
    wants.push_back(want);
  }
  if (names.empty()) return;
  if (!output.requires_grad()) fail_case(test_case.name, "gradients are expected, but the output has none");
  auto seed = at::ones_like(output);
  if (test_case.grad_output.defined()) {
    if (test_case.grad_output.sizes() != output.sizes()) {
      fail_case(test_case.name, "input.grad_output has another shape than the output");
    }
    seed = test_case.grad_output.to(output.options());
  }
  const auto gradients = torch::autograd::grad({output}, sources, {seed}, /*retain_graph=*/std::nullopt,
                                               /*create_graph=*/false, /*allow_unused=*/true);
  double scale = 0.0;
  for (const auto& want : wants) scale = std::max(scale, largest(want));
  const auto tolerance = tolerance_of(settings, report.dtype, /*gradient=*/true);
  for (size_t i = 0; i < names.size(); ++i) {
    const auto got = gradients[i].defined() ? gradients[i] : at::zeros_like(sources[i]);
    report.tensors.push_back(
        compare_tensors(names[i], got, wants[i], tolerance.atol + tolerance.rtol * scale));
  }
}

bool holds_nan(const at::Tensor& tensor) {
  return tensor.defined() && tensor.isnan().any().item<bool>();
}

// Clean weights of a run that draws nothing and lets the backend be any: they say which queries have keys.
CaseOutput clean_run(const Case& test_case, const CaseModule& entry, const CaseArguments& options,
                     const CaseArguments& call, const CaseInputs& inputs, const CaseSettings& settings,
                     CaseReport& report) {
  auto still = test_case;
  still.train = false;
  const auto runner = build(still, entry, options, Backend::Auto, settings, report, /*compare_seed=*/false);
  const at::NoGradGuard no_grad;
  return runner.forward(inputs, call, Weights::Clean);
}

void run(const Case& test_case, const CaseSettings& settings, CaseReport& report) {
  const CaseArguments options(test_case.name, "option", test_case.options);
  const CaseArguments call(test_case.name, "call argument", test_case.call);
  const auto& entry = find_case_module(test_case, options, call);
  report.dtype = dtype_of(test_case);
  if (test_case.expected_weights.defined() && !entry.returns_weights) {
    fail_case(test_case.name,
              fmt::format("unknown tensor expected.weights: {} returns none", test_case.module));
  }
  report.skipped = why_skipped(test_case, settings);
  if (!report.skipped.empty()) return;

  const auto runner =
      build(test_case, entry, options, settings.backend, settings, report, /*compare_seed=*/true);
  const auto leaves = make_leaves(test_case, report.dtype, settings.device);
  const CaseInputs inputs(test_case.name, leaves);

  const at::AutoGradMode grad_mode(true);
  const DropoutStreamGuard stream(DropoutStream::Aten);
  if (test_case.forward_seed) at::manual_seed(*test_case.forward_seed);
  const auto before = at::detail::getDefaultCPUGenerator().get_state();
  const auto result =
      runner.forward(inputs, call, test_case.expected_weights.defined() ? Weights::Dropped : Weights::None);
  if (!test_case.forward_seed && !before.equal(at::detail::getDefaultCPUGenerator().get_state())) {
    fail_case(test_case.name, "missing metadata forward_seed: the call draws random numbers (dropout)");
  }

  const auto tolerance = tolerance_of(settings, report.dtype, /*gradient=*/false);
  const auto zero = at::zeros({}, at::kDouble);
  const auto bias = runner.output_bias.empty() ? zero : state_dict(*runner.module).at(runner.output_bias);
  const auto& want = test_case.expected_output;
  const auto& want_weights = test_case.expected_weights;
  at::Tensor empty_outputs, empty_weights;
  if (holds_nan(want) || holds_nan(want_weights)) {
    const auto clean = clean_run(test_case, entry, options, call, inputs, settings, report).weights;
    empty_outputs = empty_rows(clean, want.dim(), runner.sequence_first);
    if (want_weights.defined())
      empty_weights = empty_rows(clean, want_weights.dim(), /*sequence_first=*/false);
  }
  compare_expected("expected.output", result.output, want, empty_outputs, bias, tolerance, report);
  if (want_weights.defined()) {
    compare_expected("expected.weights", result.weights, want_weights, empty_weights, zero, tolerance,
                     report);
  }
  compare_gradients(test_case, settings, result.output, leaves, runner.module.get(), report);
}

}  // namespace

CaseReport run_case(const Case& test_case, const CaseSettings& settings) {
  CaseReport report;
  report.name = test_case.name;
  report.module = test_case.module;
  const RandomStateGuard guard;
  try {
    run(test_case, settings, report);
  } catch (const CaseError&) {
    throw;
  } catch (const c10::Error& error) {
    // A module that refuses its arguments says why; the case's name is what is missing.
    fail_case(test_case.name, error.what_without_backtrace());
  }
  return report;
}

}  // namespace attentive
