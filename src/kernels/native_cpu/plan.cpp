#include "kernels/native_cpu/plan.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

namespace attentive::kernels::native_cpu {

c10::intrusive_ptr<Plan> make_plan(const Problem& problem, bool for_backward) {
  auto plan = c10::make_intrusive<Plan>();
  auto lowered = lower(problem, for_backward);
  plan->numbers = lowered.numbers;
  plan->terms = std::move(lowered.terms);
  return plan;
}

Call make_call(const Numbers& numbers, const Terms& terms, at::ScalarType type) {
  Call call{numbers};
  call.group = call.H / call.Hkv;
  call.is_bf16 = type == at::kBFloat16;
  if (terms.keep.defined()) {
    call.keep = read<bool>(terms.keep);
    call.keep.col = terms.keep.stride(3);
  }
  if (terms.bias.defined()) {
    call.bias = read<float>(terms.bias);
    call.bias.col = terms.bias.stride(3);
  }
  if (terms.lengths.defined()) call.key_lengths = terms.lengths.const_data_ptr<int64_t>();
  if (terms.slopes.defined()) {
    call.slopes = terms.slopes.const_data_ptr<float>();
    call.slope_b = terms.slopes.stride(0);
    call.slope_h = terms.slopes.stride(1);
  }
  if (terms.sinks.defined()) call.sinks = terms.sinks.const_data_ptr<float>();
  return call;
}

at::Tensor with_unit_stride(const at::Tensor& x) {
  return x.stride(-1) == 1 || x.size(-1) == 1 ? x : x.contiguous();
}

at::Tensor heads_inside(const at::Tensor& like, int64_t heads, int64_t rows, int64_t dim) {
  return at::empty_strided({like.size(0), heads, rows, dim}, {rows * heads * dim, dim, heads * dim, 1},
                           like.options());
}

at::Tensor gradient_of(const at::Tensor& x) {
  const auto gradient = at::empty_like(x);
  return gradient.stride(3) == 1 || x.size(3) == 1 ? gradient
                                                   : heads_inside(x, x.size(1), x.size(2), x.size(3));
}

}  // namespace attentive::kernels::native_cpu
