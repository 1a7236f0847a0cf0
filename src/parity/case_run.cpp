#include <algorithm>

#include <ATen/ops/isnan.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <attentive/core/options.h>
#include <attentive/modules/module.h>
#include <attentive/parity/case.h>
#include <attentive/parity/compare.h>
#include <attentive/parity/draws.h>

#include "parity/case_arguments.h"
#include "parity/case_compare.h"
#include "parity/case_compute.h"

namespace attentive {
namespace {

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
    // A module that refuses its arguments gives a reason, but does not know the case's name.
    fail_case(test_case.name, error.what_without_backtrace());
  }
  return report;
}

}  // namespace attentive
