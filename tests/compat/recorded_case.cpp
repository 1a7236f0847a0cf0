#include "compat/recorded_case.h"

#include <algorithm>
#include <glob.h>

#include <ATen/ops/isnan.h>
#include <ATen/ops/ones_like.h>

#include "support/compare.h"

namespace attentive::test {
namespace {

std::string differs(const at::Tensor& got, const at::Tensor& want, Tolerance tolerance) {
  const auto undefined = at::isnan(want);
  if (!undefined.any().item<bool>()) return difference(got, want, tolerance);
  if (at::isnan(got).any().item<bool>()) return "NaN";
  return difference(got.masked_fill(undefined, 0.0), want.masked_fill(undefined, 0.0), tolerance);
}

}  // namespace

RecordedCase::RecordedCase(const std::string& path) : file(load_safetensors(path)) {
  options = nlohmann::json::parse(file.metadata.at("options"));
  call = nlohmann::json::parse(file.metadata.at("call"));
  for (const auto& [name, value] : file.tensors) {
    if (name.rfind("state.", 0) == 0) state[name.substr(6)] = value;
  }
}

at::Tensor RecordedCase::tensor(const std::string& name) const {
  const auto found = file.tensors.find(name);
  return found == file.tensors.end() ? at::Tensor() : found->second;
}

int64_t RecordedCase::seed(const std::string& key) const {
  const auto found = file.metadata.find(key);
  return found == file.metadata.end() ? -1 : std::stoll(found->second);
}

// Not std::filesystem: libtorch exports directory iterators of an older libstdc++.
std::vector<std::string> case_files(const std::string& pattern) {
  glob_t found{};
  ::glob((std::string(ATTENTIVE_SOURCE_DIR "/tests/") + pattern).c_str(), 0, nullptr, &found);
  std::vector<std::string> result(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return result;
}

at::Tensor Leaves::operator()(const std::string& name, const at::Tensor& otherwise) {
  const auto given = case_.tensor("input." + name);
  if (!given.defined()) return otherwise;
  auto leaf = given.clone();
  if (case_.tensor("grad.input." + name).defined()) leaf.requires_grad_(true);
  return leaves_[name] = leaf;
}

std::string compare_initial(const RecordedCase& recorded, const torch::nn::Module& module) {
  if (recorded.seed("init_seed") < 0) return "";
  for (const auto& [key, tensor] : state_dict(module)) {
    const auto& want = recorded.state.at(key);
    if (!bit_equal(tensor.to(want.scalar_type()), want)) return "initial " + key;
  }
  return "";
}

std::string compare(const RecordedCase& recorded, const torch::nn::Module& module, const Leaves& leaves,
                    const at::Tensor& output, const at::Tensor& weights) {
  const auto tolerance = default_tolerance(recorded.type());
  if (const auto why = differs(output, recorded.tensor("expected.output"), tolerance); !why.empty())
    return "output: " + why;
  const auto wanted = recorded.tensor("expected.weights");
  if (weights.defined() != wanted.defined()) return "weights: one side has none";
  if (weights.defined()) {
    if (const auto why = differs(weights, wanted, tolerance); !why.empty()) return "weights: " + why;
  }

  double largest = 0.0;
  for (const auto& [name, tensor] : recorded.file.tensors) {
    if (name.rfind("grad.", 0) == 0 && tensor.numel() > 0)
      largest = std::max(largest, tensor.abs().max().item<double>());
  }
  const auto relative = default_tolerance(recorded.type(), /*gradient=*/true);
  const Tolerance absolute = {0.0, relative.atol + relative.rtol * largest};
  auto direction = recorded.tensor("input.grad_output");
  if (!direction.defined()) direction = at::ones_like(output);
  output.backward(direction);
  const auto parameters = module.named_parameters();
  for (const auto& [name, want] : recorded.file.tensors) {
    at::Tensor got;
    if (name.rfind("grad.input.", 0) == 0)
      got = leaves.leaves_.at(name.substr(11)).grad();
    else if (name.rfind("grad.state.", 0) == 0)
      got = parameters[name.substr(11)].grad();
    else
      continue;
    if (!got.defined()) return name + ": no gradient";
    if (const auto why = differs(got, want, absolute); !why.empty()) return name + ": " + why;
  }
  return "";
}

}  // namespace attentive::test
