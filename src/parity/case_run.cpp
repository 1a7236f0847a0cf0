#include <algorithm>
#include <cmath>

#include <ATen/autocast_mode.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/core/options.h>
#include <attentive/files/state_dict.h>
#include <attentive/modules/module.h>
#include <attentive/parity/compare.h>

#include "core/check.h"
#include "parity/case_compare.h"
#include "parity/case_modules.h"

namespace attentive {
namespace {

// The arithmetic in which a case is computed.
struct CaseArithmetic {
  at::ScalarType dtype = at::kFloat;  // of the state and the inputs; if it is float64, of masks too
  std::optional<at::ScalarType> autocast = std::nullopt;  // if set, the inputs keep their dtypes
  Backend backend = Backend::Auto;
  at::Device device = at::kCPU;
};

// A parsed case: its registry entry and its arguments.
struct CasePlan {
  explicit CasePlan(const Case& given)
      : test_case(given),
        options(given.name, "option", given.options),
        call(given.name, "call argument", given.call),
        entry(find_case_module(given, options, call)) {}

  const Case& test_case;
  CaseArguments options, call;
  const CaseModule& entry;
};

// The results that a case requests. `gradients` have the names in the file.
struct CaseResults {
  std::map<std::string, at::Tensor> initial = {};  // the weights drawn from `init_seed`
  std::vector<std::string> normal = {};            // the names of those that are normally distributed
  CaseOutput output = {};
  std::map<std::string, at::Tensor> gradients = {};
  at::Tensor empty_output;      // the value of an output row without keys: zero or the output bias
  bool sequence_first = false;  // a batched output is (L, N, E)
};

bool is_mask(const std::string& input) {
  return input.size() >= 4 && input.compare(input.size() - 4, 4, "mask") == 0;
}

// The dtype of a case's arithmetic: that of its state, or else of its inputs.
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

// Builds the module, runs the forward pass and, unless the case disables it, the backward pass.
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

// Attention weights by head of a run without dropout, which show which queries have keys; undefined if the
// module returns none.
at::Tensor clean_weights(const CasePlan& plan, CaseArithmetic arithmetic) {
  arithmetic.backend = Backend::Auto;
  return run_clean(plan, arithmetic, Weights::Clean, [](const torch::nn::Module*) {}).weights;
}

std::string why_skipped(const Case& test_case, const CaseSettings& settings) {
  if (test_case.dropout_path.empty()) return {};
  if (!settings.device.is_cpu())
    return "its dropout was drawn on the CPU, and another device draws another stream";
  const auto stream = dropout_stream_of_this_cpu();
  if (stream == test_case.dropout_path) return {};
  return fmt::format("its dropout was drawn from PyTorch's stream \"{}\", and this machine draws \"{}\"",
                     test_case.dropout_path, stream);
}

// One compared tensor: this package's result, and PyTorch's with its NaN replaced by this package's
// convention.
struct Compared {
  std::string name;
  at::Tensor got, want;
  double scale;  // max|want|; for gradients, over all of them
  bool gradient = false;
  std::string note = {};
};

// Compares weights drawn from the seed with those in the file.
void compare_initial(const Case& test_case, const CaseResults& results, CaseReport& report) {
  for (const auto& [key, fresh] : results.initial) {
    const auto want = test_case.state.find(key);
    if (want == test_case.state.end()) continue;  // load_state_dict reports it
    const auto got = fresh.to(want->second.scalar_type());
    auto row = compare_tensors("init." + key, got, want->second, 0.0);
    const bool normal = std::find(results.normal.begin(), results.normal.end(), key) != results.normal.end();
    const auto distribution = normal ? Drawn::Normal : Drawn::Uniform;
    if (!row.passed && same_draw(fresh, want->second, distribution)) {
      row.passed = true;
      row.note = draw_rule(distribution);
    }
    report.tensors.push_back(std::move(row));
  }
}

// Finds the queries without a key, for each row of `want`, from this package's clean weights (..., S): a row
// of weights sums to one, or is zero. If the weights are by head and the rows stand for all heads, a row is
// empty if no head has a key.
at::Tensor empty_rows(const at::Tensor& clean_weights, int64_t want_rank, bool sequence_first) {
  auto empty = clean_weights.eq(0).all(-1);
  while (empty.dim() > want_rank - 1) empty = empty.all(-2);
  return sequence_first && empty.dim() == 2 ? empty.t() : empty;
}

bool holds_nan(const at::Tensor& tensor) {
  return tensor.defined() && tensor.isnan().any().item<bool>();
}

// Prepares the comparison of one of `expected.*`; `empty` tells where PyTorch's NaN is allowed, and
// `convention` is what this package must give there.
Compared expected(const std::string& name, const at::Tensor& got, at::Tensor want, const at::Tensor& empty,
                  const at::Tensor& convention) {
  int64_t rows = 0;
  if (empty.defined() && got.sizes() == want.sizes())
    want = replace_empty_rows(want, empty, convention, rows);
  Compared result{name, got, want, largest_magnitude(want)};
  if (rows > 0) {
    result.note =
        fmt::format("{} row{} without keys: NaN in PyTorch, {} here by convention", rows,
                    rows == 1 ? "" : "s", convention.dim() == 0 ? "zero" : "the output projection's bias");
  }
  return result;
}

std::vector<Compared> pair_up(const CasePlan& plan, const CaseArithmetic& arithmetic,
                              const CaseResults& results) {
  const auto& test_case = plan.test_case;
  const auto& want = test_case.expected_output;
  const auto& want_weights = test_case.expected_weights;
  at::Tensor empty_outputs, empty_weights;
  if (holds_nan(want) || holds_nan(want_weights)) {
    if (const auto clean = clean_weights(plan, arithmetic); clean.defined()) {
      empty_outputs = empty_rows(clean, want.dim(), results.sequence_first);
      if (want_weights.defined())
        empty_weights = empty_rows(clean, want_weights.dim(), /*sequence_first=*/false);
    }
  }
  std::vector<Compared> pairs;
  pairs.push_back(
      expected("expected.output", results.output.output, want, empty_outputs, results.empty_output));
  if (want_weights.defined()) {
    pairs.push_back(expected("expected.weights", results.output.weights, want_weights, empty_weights,
                             at::zeros({}, at::kDouble)));
  }
  double scale = 0.0;
  for (const auto* part : {&test_case.input_gradients, &test_case.state_gradients}) {
    for (const auto& [name, gradient] : *part) scale = std::max(scale, largest_magnitude(gradient));
  }
  const auto add = [&](const std::map<std::string, at::Tensor>& part, const std::string& prefix) {
    for (const auto& [name, gradient] : part)
      pairs.push_back({prefix + name, results.gradients.at(prefix + name), gradient, scale, true});
  };
  add(test_case.input_gradients, "grad.input.");
  add(test_case.state_gradients, "grad.state.");
  return pairs;
}

TensorComparison compare(const Compared& pair, const CaseSettings& settings, at::ScalarType dtype) {
  auto tolerance = tolerance_of(dtype, pair.gradient);
  tolerance.atol = settings.atol.value_or(tolerance.atol);
  tolerance.rtol = settings.rtol.value_or(tolerance.rtol);
  auto row = compare_tensors(pair.name, pair.got, pair.want, tolerance.allowed(pair.scale));
  if (!pair.note.empty()) row.note += (row.note.empty() ? "" : "; ") + pair.note;
  return row;
}

// Adds to each row how far both sides are from float64, and to those that differ which side's error it is.
void add_exact(const CasePlan& plan, const std::vector<Compared>& pairs, at::Device device, size_t first,
               CaseReport& report) {
  CaseResults exact;
  try {
    exact = compute_case(plan, {.dtype = at::kDouble, .backend = Backend::Reference, .device = device});
  } catch (const c10::Error& error) {  // a failure of this run must not change the verdict
    report.tensors[first].note += fmt::format(" float64: {}", error.what_without_backtrace());
    return;
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto& pair = pairs[i];
    auto& row = report.tensors[first + i];
    const auto& truth = pair.gradient                     ? exact.gradients.at(pair.name)
                        : pair.name == "expected.weights" ? exact.output.weights
                                                          : exact.output.output;
    if (truth.sizes() != pair.want.sizes() || truth.sizes() != pair.got.sizes()) continue;
    row.exact = {distance_of(pair.got, truth).largest, distance_of(pair.want, truth).largest};
    if (row.passed) continue;
    const auto judgement = whose_error(*row.exact, report.dtype, pair.gradient, pair.scale);
    if (!judgement.empty()) row.note += (row.note.empty() ? "" : "; ") + judgement;
  }
}

void run(const Case& test_case, const CaseSettings& settings, CaseReport& report) {
  const CasePlan plan(test_case);
  const CaseArithmetic arithmetic{dtype_of(test_case), test_case.autocast, settings.backend, settings.device};
  report.dtype = test_case.autocast.value_or(arithmetic.dtype);
  report.autocast = test_case.autocast.has_value();
  if (test_case.expected_weights.defined() && !plan.entry.returns_weights) {
    fail_case(test_case.name,
              fmt::format("unknown tensor expected.weights: {} returns none", test_case.module));
  }
  report.skipped = why_skipped(test_case, settings);
  if (!report.skipped.empty()) return;

  const auto results = compute_case(plan, arithmetic);
  compare_initial(test_case, results, report);
  const auto pairs = pair_up(plan, arithmetic, results);
  const auto first = report.tensors.size();
  bool differs = false;
  for (const auto& pair : pairs) {
    report.tensors.push_back(compare(pair, settings, report.dtype));
    differs = differs || !report.tensors.back().passed;
  }
  if (differs && arithmetic.dtype != at::kDouble) add_exact(plan, pairs, settings.device, first, report);
}

// Runs `work` with a random state of its own. A module that refuses its arguments gives a reason, but does
// not know the case's name.
template <class Work>
void isolated(const Case& test_case, const Work& work) {
  const RandomStateGuard guard;
  try {
    work();
  } catch (const CaseError&) {
    throw;
  } catch (const c10::Error& error) {
    fail_case(test_case.name, error.what_without_backtrace());
  }
}

}  // namespace

TensorComparison compare_tensors(std::string name, const at::Tensor& got, const at::Tensor& want,
                                 double tolerance) {
  const auto distance = distance_of(got, want);
  TensorComparison result;
  result.name = std::move(name);
  result.shape = want.sizes().vec();
  result.difference = distance.largest;
  result.tolerance = tolerance;
  result.passed = distance.within(tolerance);
  if (got.sizes() != want.sizes()) {
    result.note =
        fmt::format("expected shape {}, got {}", shape_string(want.sizes()), shape_string(got.sizes()));
  } else if (std::isnan(distance.want)) {
    result.note = "PyTorch's values hold NaN";
  } else if (std::isnan(distance.got)) {
    result.note = "our values hold NaN";
  }
  return result;
}

at::Tensor replace_empty_rows(const at::Tensor& want, const at::Tensor& empty, const at::Tensor& convention,
                              int64_t& rows) {
  const auto exact = want.detach().to(at::kCPU, at::kDouble);
  const auto replaced = exact.isnan().logical_and(empty.to(at::kCPU).unsqueeze(-1));
  rows = replaced.any(-1).sum().item<int64_t>();
  return at::where(replaced, convention.detach().to(at::kCPU, at::kDouble), exact);
}

std::string whose_error(const ExactDistances& exact, at::ScalarType dtype, bool gradient, double scale) {
  if (!std::isfinite(exact.actual) || !std::isfinite(exact.expected)) return {};
  const bool torch_is_worse = exact.expected >= exact.actual;
  const double low = torch_is_worse ? exact.actual : exact.expected,
               high = torch_is_worse ? exact.expected : exact.actual;
  if (high > 100 * tolerance_of(dtype, gradient).allowed(scale))
    return fmt::format("{} off our float64 by more than rounding", torch_is_worse ? "PyTorch is" : "ours is");
  if (low == 0.0) return fmt::format("the error is {}", torch_is_worse ? "PyTorch's" : "ours");
  return fmt::format("{} error is {:.{}f} times {}", torch_is_worse ? "PyTorch's" : "our", high / low,
                     high < 1e3 * low ? 1 : 0, torch_is_worse ? "ours" : "PyTorch's");
}

CaseReport run_case(const Case& test_case, const CaseSettings& settings) {
  CaseReport report;
  report.name = test_case.name;
  report.module = test_case.module;
  isolated(test_case, [&] { run(test_case, settings, report); });
  return report;
}

std::vector<RecordedAttention> case_attention(const Case& test_case, const AttentionRecorderOptions& options,
                                              const CaseSettings& settings) {
  std::optional<AttentionRecorder> recorder;
  isolated(test_case, [&] {
    run_clean(CasePlan(test_case),
              {dtype_of(test_case), test_case.autocast, settings.backend, settings.device}, Weights::None,
              [&](const torch::nn::Module* module) {
                if (module) {
                  recorder.emplace(*module, options);
                } else {
                  recorder.emplace(options);
                }
              });
  });
  return recorder->calls();
}

}  // namespace attentive
