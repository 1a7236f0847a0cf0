#include "kernels/torch/flash_cpu.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>

#include "kernels/native_backward.h"

namespace attentive::kernels::pytorch {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Kept : torch::CustomClassHolder {
  bool causal = false;
  std::optional<double> scale;
  Changes changes;
};

class FlashCpu : public torch::autograd::Function<FlashCpu> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const std::optional<at::Tensor>& mask, bool causal,
                               std::optional<double> scale) {
    const auto result = aten::flash_cpu(q, k, v, causal, mask, scale);
    auto kept = c10::make_intrusive<Kept>();
    kept->causal = causal;
    kept->scale = scale;
    kept->changes.watch(result.output);
    kept->changes.watch(result.logsumexp);
    context->save_for_backward({q, k, v, mask.value_or(at::Tensor()), result.output.variable_data(),
                                result.logsumexp.variable_data()});
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    context->mark_non_differentiable({result.logsumexp});
    return {result.output, result.logsumexp};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &q = saved[0], &k = saved[1], &v = saved[2];
    const auto mask = saved[3].defined() ? std::optional(saved[3]) : std::nullopt;
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    auto result = aten::FusedResult{saved[4], saved[5]};
    if (kept->changes.any()) result = aten::flash_cpu(q, k, v, kept->causal, mask, kept->scale);
    const auto of = aten::flash_cpu_backward(gradients[0], q, k, v, result, kept->causal, mask, kept->scale);
    return {of[0], of[1], of[2], at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

aten::FusedResult flash_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                            const std::optional<at::Tensor>& mask, std::optional<double> scale) {
  const auto results = FlashCpu::apply(q, k, v, mask, causal, scale);
  return {results[0], results[1]};
}

}  // namespace attentive::kernels::pytorch
