#include "modules/golden_check.h"

#include <algorithm>

#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/core/options.h>
#include <attentive/parity/compare.h>

#include "support/compare.h"
#include "support/golden.h"

namespace attentive::test {
namespace {

void draw_inputs(const Golden& golden, const GoldenModule& module) {
  if (!module.draws_inputs) return;
  for (const auto& name : module.inputs) {
    INFO(draw_rule(Drawn::Normal));
    const auto& want = golden["input." + name];
    CHECK(same_draw(at::randn(want.sizes()), want, Drawn::Normal));
  }
}

at::Tensor loss_of(const Golden& golden, const at::Tensor& output) {
  if (!golden.has("grad_output")) return output.sum();
  return (output * golden["grad_output"].to(output.device())).sum();
}

// Returns the part of a tensor that the golden file stores: of large parameters only the first rows and
// columns.
at::Tensor stored_part(const at::Tensor& tensor, const at::Tensor& stored) {
  auto part = tensor;
  for (int64_t d = 0; d < stored.dim(); ++d) part = part.slice(d, 0, stored.size(d));
  return part;
}

void check_parameters(const Golden& golden, torch::nn::Module& module) {
  INFO(draw_rule(Drawn::Uniform));
  const auto parameters = module.named_parameters();
  CHECK(golden.names("state.").size() == parameters.size());
  const at::NoGradGuard no_grad;
  for (const auto& name : golden.names("state.")) {
    INFO("parameter " << name);
    const auto& want = golden["state." + name];
    CHECK(same_draw(stored_part(parameters[name], want), want));
  }
}

void check_numbers(const Golden& golden, const GoldenModule& golden_module, torch::nn::Module& module,
                   const at::Device& device) {
  Mask mask;
  if (golden.has("mask")) mask = Mask::keep(golden["mask"].ne(0).to(device));
  Inputs inputs;
  for (const auto& name : golden_module.inputs)
    inputs.push_back(golden["input." + name].to(device).detach().clone().requires_grad_(true));

  module.zero_grad();
  const auto output = golden_module.call(module, inputs, mask, Weights::None).first;
  CHECK_CLOSE(output, golden["output"]);
  loss_of(golden, output).backward();
  const auto tolerance = tolerance_of(at::kFloat, /*gradient=*/true);
  const auto parameters = module.named_parameters();
  for (const auto& name : golden.names("grad.input.")) {
    INFO("gradient of input " << name);
    const auto index = std::find(golden_module.inputs.begin(), golden_module.inputs.end(), name) -
                       golden_module.inputs.begin();
    CHECK(difference(inputs.at(static_cast<size_t>(index)).grad(), golden["grad.input." + name], tolerance) ==
          "");
  }
  for (const auto& name : golden.names("state.")) {
    INFO("gradient of " << name);
    const auto& want = golden["grad." + name];
    CHECK(difference(stored_part(parameters[name].grad(), want), want, tolerance) == "");
  }

  const auto [same, weights] = golden_module.call(module, inputs, mask, Weights::Clean);
  CHECK_CLOSE(same, golden["output"]);
  CHECK_CLOSE(weights, golden["weights"]);
}

}  // namespace

void check_golden(const std::string& name, const GoldenModule& golden_module, const at::Device& device) {
  INFO("golden " << name << " on " << device);
  const Golden golden(name);
  at::manual_seed(golden.seed());
  draw_inputs(golden, golden_module);
  const auto module = golden_module.make();
  check_parameters(golden, *module);
  module->eval();
  module->to(device);
  for (const auto backend : {Backend::Auto, Backend::Reference}) {
    INFO("backend " << to_string(backend));
    const BackendGuard guard(backend);
    check_numbers(golden, golden_module, *module, device);
  }
}

void check_training(const std::string& name, const GoldenModule& golden_module) {
  const auto stream = dropout_stream_of_this_cpu();
  INFO("golden " << name << ", CPU dropout stream " << stream);
  REQUIRE(stream != "unknown");
  const Golden golden(name);
  const DropoutStreamGuard guard(DropoutStream::Aten);
  for (const auto which : {Weights::Dropped, Weights::None}) {
    at::manual_seed(golden.seed());
    Inputs inputs;
    draw_inputs(golden, golden_module);
    for (const auto& input : golden_module.inputs) inputs.push_back(golden["input." + input]);
    const auto module = golden_module.make();
    module->train();
    const auto [output, weights] = golden_module.call(*module, inputs, {}, which);
    const auto& want = golden[stream + ".output"];
    CHECK_CLOSE(stored_part(output, want), want);
    // The stored part may be small, but the sum depends on every dropped number.
    CHECK_WITHIN(output.to(at::kDouble).sum(), golden[stream + ".output_sum"], {0.0, 1e-4});
    if (which == Weights::Dropped) CHECK_CLOSE(weights, golden[stream + ".weights"]);
  }
}

at::Device cuda_or_skip() {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  return at::Device(at::kCUDA, 0);
}

at::Tensor sentence() {
  return table({{.43f, .15f, .89f},
                {.55f, .87f, .66f},
                {.57f, .85f, .64f},
                {.22f, .58f, .33f},
                {.77f, .25f, .10f},
                {.05f, .80f, .55f}});
}

at::Tensor batch() {
  return at::stack({sentence(), sentence()});
}

bool as_printed(const at::Tensor& got, const at::Tensor& printed) {
  return difference(got, printed, printed_tolerance(4)).empty();
}

}  // namespace attentive::test
