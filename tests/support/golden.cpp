#include "support/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <stdexcept>

#include <ATen/Version.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <nlohmann/json.hpp>
#include <torch/nn/modules/dropout.h>

#include "support/compare.h"

namespace attentive::test {
namespace {

const nlohmann::json& file() {
  static const auto content = [] {
    std::ifstream in(ATTENTIVE_SOURCE_DIR "/tests/modules/data/goldens.json");
    return nlohmann::json::parse(in);
  }();
  return content;
}

bool full_vector_kernels() {
  const auto capability = at::get_cpu_capability();
  return capability == "AVX2" || capability == "AVX512";
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

bool same_draw(const at::Tensor& got, const at::Tensor& want) {
  if (full_vector_kernels()) return bit_equal(got, want);
  if (got.sizes() != want.sizes()) return false;
  const auto a = got.detach().cpu().contiguous(), b = want.detach().cpu().contiguous();
  const float* x = a.const_data_ptr<float>();
  const float* y = b.const_data_ptr<float>();
  for (int64_t i = 0; i < a.numel(); ++i) {
    const float ulp = std::nextafter(std::abs(y[i]), std::numeric_limits<float>::infinity()) - std::abs(y[i]);
    if (!(std::abs(x[i] - y[i]) <= 2 * ulp)) return false;
  }
  return true;
}

std::string draw_rule() {
  return "draws compared " + std::string(full_vector_kernels() ? "bit for bit" : "within 2 ulp") +
         " (CPU capability " + at::get_cpu_capability() + ")";
}

std::string dropout_stream_of_this_cpu() {
  const Golden golden("dropout_of_ones");
  at::manual_seed(golden.seed());
  const auto drawn = torch::nn::Dropout(0.5)->forward(at::ones({6, 6}));
  for (const std::string stream : {"default", "intel_mkl"}) {
    if (bit_equal(drawn, golden[stream])) return stream;
  }
  return "unknown";
}

}  // namespace attentive::test
