#include "kernels/captured_inputs.h"

#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

namespace attentive::kernels {
namespace {

at::Tensor as_read(const detail::CapturedTensor& captured) {
  const auto tensor = captured.tensor.detach();
  TORCH_CHECK_VALUE(tensor.is_cpu(), "captured: expected a tensor on the CPU like q, got it on ",
                    tensor.device());
  if (!captured.indices) return tensor.to(at::kFloat).resolve_neg().contiguous();
  if (tensor.scalar_type() != at::kInt && tensor.numel() > 0) {
    const auto wide = tensor.to(at::kLong);
    const auto low = wide.min().item<int64_t>(), high = wide.max().item<int64_t>();
    TORCH_CHECK_VALUE(
        low >= std::numeric_limits<int32_t>::min() && high <= std::numeric_limits<int32_t>::max(),
        "captured_indices: expected numbers of the range of int32, got ", low < 0 ? low : high);
  }
  return tensor.to(at::kInt).contiguous();
}

// A backward pass cannot save a tensor that was made in inference mode.
at::Tensor savable(at::Tensor x) {
  return x.is_inference() && at::GradMode::is_enabled() ? x.clone() : x;
}

}  // namespace

std::vector<CapturedInput> captured_inputs(const Problem& problem) {
  std::vector<CapturedInput> inputs;
  for (const auto* function : {problem.score.function().get(), problem.mask.function().get()}) {
    if (!function) continue;
    for (const auto& owner : function->captured()) {
      if (owner->in_place) continue;
      const bool known =
          std::any_of(inputs.begin(), inputs.end(), [&](const auto& input) { return input.owner == owner; });
      if (!known) inputs.push_back({owner, savable(as_read(*owner))});
    }
  }
  return inputs;
}

std::vector<detail::CapturedView> captured_views(const std::vector<CapturedInput>& inputs) {
  std::vector<detail::CapturedView> views;
  for (const auto& input : inputs) {
    detail::CapturedView view{.owner = input.owner.get(),
                              .numbers = input.numbers.const_data_ptr(),
                              .rank = static_cast<int>(input.numbers.dim())};
    for (int64_t d = 0; d < input.numbers.dim(); ++d) {
      view.sizes[static_cast<size_t>(d)] = input.numbers.size(d);
      view.strides[static_cast<size_t>(d)] = input.numbers.stride(d);
    }
    views.push_back(view);
  }
  return views;
}

}  // namespace attentive::kernels
