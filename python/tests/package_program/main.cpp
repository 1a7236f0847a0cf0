// Runs a package that Python compiled with AOTInductor, and prints sums of what it returns:
//
//   program <package.pt2> <batch> <heads> <tokens> <head_dim>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <ATen/ops/arange.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <attentive/operators.h>

int main(int count, char** arguments) {
  if (count != 6) return 2;
  attentive::load_operators();
  std::vector<int64_t> sizes;
  int64_t numbers = 1;
  for (int i = 2; i < count; ++i) {
    sizes.push_back(std::atoll(arguments[i]));
    numbers *= sizes.back();
  }
  const auto input = [&](double step) {
    return at::arange(numbers, at::kDouble).mul(step).sin().reshape(sizes).to(at::kFloat);
  };
  torch::inductor::AOTIModelPackageLoader package(arguments[1]);
  for (const auto& x : package.run({input(0.11), input(0.17), input(0.23)}))
    std::printf("%.9g %.9g\n", x.sum(at::kDouble).item<double>(), x.square().sum(at::kDouble).item<double>());
  return 0;
}
