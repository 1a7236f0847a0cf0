#include "modules/bias_cases.h"

#include <algorithm>
#include <cstdlib>

#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/core/options.h>
#include <attentive/files/state_dict.h>

#include "support/compare.h"
#include "support/files.h"

namespace attentive::test {

std::vector<BiasCase> bias_cases(const std::string& kind, size_t least) {
  const char* named = std::getenv("ATTENTIVE_BIAS_CASES");
  const auto bundle = named ? std::string(named) : source_folder() + "/tests/modules/data/biases.safetensors";
  std::vector<BiasCase> cases;
  for (auto& [place, content] : load_cases(bundle)) {
    if (!place.starts_with(bundle + "#" + kind + "-")) continue;
    auto file = make_case(std::move(content), place);
    auto options = nlohmann::json::parse(file.options);
    const auto dtype = file.expected_output.scalar_type();
    cases.push_back({std::move(file), std::move(options), dtype});
  }
  REQUIRE(cases.size() >= least);
  return cases;
}

void check_bias_case(const BiasCase& bias_case, torch::nn::Module& module,
                     const std::function<at::Tensor(const CaseTensors& inputs)>& forward,
                     const std::vector<std::string>& without) {
  const auto& file = bias_case.file;
  INFO(file.name);
  module.to(bias_case.dtype);
  module.eval();
  auto state = file.state;
  const auto parameters = module.named_parameters();
  for (const auto& name : without) REQUIRE(state.emplace(name, at::zeros_like(parameters[name])).second);
  load_state_dict(module, state);

  double largest = 0.0;
  for (const auto* gradients : {&file.input_gradients, &file.state_gradients}) {
    for (const auto& [name, gradient] : *gradients) largest = std::max(largest, largest_magnitude(gradient));
  }
  const auto allowed = tolerance_of(bias_case.dtype, /*gradient=*/true).allowed(largest);
  const auto check_gradient = [&](const at::Tensor& got, const at::Tensor& want) {
    REQUIRE(got.defined());
    const auto distance = distance_of(got, want);
    INFO("difference " << distance.largest << ", tolerance " << allowed);
    CHECK(distance.within(allowed));
  };
  for (const auto backend : {Backend::Auto, Backend::Reference}) {
    INFO("backend " << to_string(backend));
    const BackendGuard guard(backend);
    CaseTensors inputs;
    for (const auto& [name, tensor] : file.inputs)
      inputs[name] = tensor.detach().clone().requires_grad_(tensor.is_floating_point());
    module.zero_grad();
    const auto output = forward(inputs);
    CHECK_CLOSE(output, file.expected_output);
    (output * file.grad_output).sum().backward();
    for (const auto& [name, gradient] : file.input_gradients) {
      INFO("gradient of input " << name);
      check_gradient(inputs.at(name).grad(), gradient);
    }
    CHECK(file.state_gradients.size() == file.state.size());
    for (const auto& [name, gradient] : file.state_gradients) {
      INFO("gradient of " << name);
      check_gradient(parameters[name].grad(), gradient);
    }
  }
}

}  // namespace attentive::test
