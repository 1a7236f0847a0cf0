#include "support/golden.h"

#include <fstream>

#include <ATen/ops/tensor.h>
#include <nlohmann/json.hpp>

#include "support/files.h"

namespace attentive::test {
namespace {

const nlohmann::json& file() {
  static const auto content = [] {
    std::ifstream in(source_folder() + "/tests/modules/data/goldens.json");
    return nlohmann::json::parse(in);
  }();
  return content;
}

}  // namespace

Golden::Golden(const std::string& name) {
  const auto& entry = file().at(name);
  seed_ = entry.at("seed").get<uint64_t>();
  for (const auto& [key, value] : entry.items()) {
    if (key == "seed") continue;
    const auto shape = value.at("shape").get<std::vector<int64_t>>();
    const auto data = value.at("data").get<std::vector<double>>();
    const auto exact = at::tensor(data, at::kDouble).reshape(shape);
    tensors_[key] = shape.empty() ? exact : exact.to(at::kFloat);
  }
}

std::vector<std::string> Golden::names(const std::string& prefix) const {
  std::vector<std::string> result;
  for (const auto& [name, tensor] : tensors_) {
    if (name.rfind(prefix, 0) == 0) result.push_back(name.substr(prefix.size()));
  }
  return result;
}

}  // namespace attentive::test
