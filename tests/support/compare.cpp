#include "support/compare.h"

#include <algorithm>

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>

namespace attentive::test {

at::Tensor table(const std::vector<std::vector<float>>& rows) {
  const auto width = rows.empty() ? 0 : static_cast<int64_t>(rows.front().size());
  auto result = at::empty({static_cast<int64_t>(rows.size()), width});
  float* out = result.mutable_data_ptr<float>();
  for (const auto& row : rows) out = std::copy(row.begin(), row.end(), out);
  return result;
}

at::Tensor doubles(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble);
}

double largest_error(const at::Tensor& got, const at::Tensor& want) {
  return (got.detach().to(at::kDouble) - want.detach()).abs().max().item<double>();
}

std::vector<at::Device> devices() {
  std::vector<at::Device> result = {at::kCPU};
  if (at::hasCUDA()) result.emplace_back(at::kCUDA);
  return result;
}

double unit_of(at::ScalarType type) {
  return type == at::kDouble ? 0x1p-52 : type == at::kFloat ? 0x1p-23 : type == at::kHalf ? 0x1p-10 : 0x1p-7;
}

double slope_terms(const at::Tensor& of_logits) {
  const int64_t L = of_logits.size(2), S = of_logits.size(3);
  const auto distance = (at::arange(S - L, S).unsqueeze(1) - at::arange(S)).abs();
  return (of_logits.abs() * distance).sum(at::IntArrayRef{0, 2, 3}).max().item<double>();
}

}  // namespace attentive::test
