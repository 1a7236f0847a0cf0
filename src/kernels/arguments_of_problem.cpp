#include "kernels/arguments_of_problem.h"

#include <array>
#include <cmath>
#include <utility>

#include <ATen/ops/bitwise_and.h>

#include "kernels/dropout_counter.h"

namespace attentive::kernels {
namespace {

// Clones `read` if it shares the memory of the caller's tensor and the backward pass will read it again.
at::Tensor unshared(const at::Tensor& read, const at::Tensor& given, bool for_backward) {
  return for_backward && read.is_alias_of(given) ? read.clone() : read;
}

// Clones an inference tensor, which has no version counter that autograd could check in the backward pass.
at::Tensor watchable(const at::Tensor& read, bool for_backward) {
  return for_backward && read.is_inference() ? read.clone() : read;
}

at::Tensor keep_of(const Problem& p, bool for_backward) {
  if (!p.key_keep.defined()) return p.keep.defined() ? watchable(p.keep, for_backward) : p.keep;
  const auto keys = p.key_keep.view({p.batch(), 1, 1, p.keys()});
  return p.keep.defined() ? at::bitwise_and(p.keep, keys) : unshared(keys, p.key_keep, for_backward);
}

Scalars scalars_of(const Problem& p, uint64_t dropout_key) {
  Scalars scalars{p.batch(), p.heads(),    p.kv_heads(),  p.queries(),
                  p.keys(),  p.head_dim(), p.value_dim(), p.band};
  scalars.scale = static_cast<float>(p.scale.value_or(1.0 / std::sqrt(static_cast<double>(p.head_dim()))));
  scalars.softcap = static_cast<float>(p.softcap.value_or(0.0));
  if (p.has_dropout()) {
    scalars.dropout = true;
    scalars.dropout_key = dropout_key;
    scalars.threshold = keep_threshold(p.dropout_p);
    scalars.survivor_scale = static_cast<float>(survivor_scale(p.dropout_p));
  }
  take_places(p, scalars);
  return scalars;
}

// The bias in an element type that the kernel reads.
at::Tensor bias_of(const Problem& p, Biases read, bool for_backward) {
  const auto type = p.bias.scalar_type();
  const bool as_given =
      type == at::kFloat || (read == Biases::HalfTypes && (type == at::kBFloat16 || type == at::kHalf));
  return watchable(p.bias.detach().to(as_given ? type : at::kFloat), for_backward);
}

MaskTensors mask_tensors_of(const Problem& p, Biases read, bool for_backward) {
  const std::array<int64_t, 4> pairs = {p.batch(), p.heads(), p.queries(), p.keys()};
  MaskTensors masks;
  if (const auto keep = keep_of(p, for_backward); keep.defined()) masks.keep = keep.expand(pairs);
  if (p.bias.defined()) masks.bias = bias_of(p, read, for_backward).expand(pairs);
  if (p.alibi_slopes.defined()) {
    const auto slopes = p.alibi_slopes.detach().to(at::kFloat);
    masks.slopes = unshared(slopes, p.alibi_slopes, for_backward).expand({p.batch(), p.heads()});
  }
  if (p.key_lengths.defined())
    masks.lengths = unshared(p.key_lengths.contiguous(), p.key_lengths, for_backward);
  if (p.sinks.defined())
    masks.sinks = unshared(p.sinks.detach().to(at::kFloat).contiguous(), p.sinks, for_backward);
  return masks;
}

template <class T>
const T* data_of(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<T>() : nullptr;
}

BiasView view_of_bias(const at::Tensor& x) {
  if (!x.defined()) return {};
  return {x.const_data_ptr(), element_of(x.scalar_type()), x.stride(0), x.stride(1), x.stride(2),
          x.stride(3)};
}

template <class T>
Strided<const T> view_of(const at::Tensor& x) {
  if (!x.defined()) return {};
  Strided<const T> view{x.const_data_ptr<T>(), x.stride(0), x.stride(1)};
  if (x.dim() == 4) {
    view.row = x.stride(2);
    view.col = x.stride(3);
  }
  return view;
}

}  // namespace

std::vector<at::Tensor> Arguments::with_masks(std::vector<at::Tensor> saved) {
  const auto taken = std::exchange(masks, {});
  for (const auto& mask : {taken.keep, taken.bias, taken.slopes, taken.lengths, taken.sinks})
    saved.push_back(mask);
  return saved;
}

uint64_t dropout_key_of(const Problem& problem) {
  if (!problem.has_dropout()) return 0;
  return problem.dropout_key ? *problem.dropout_key : draw_dropout_key(problem.generator);
}

Arguments arguments_of(const Problem& problem, uint64_t dropout_key, Biases read, bool for_backward) {
  return {scalars_of(problem, dropout_key), mask_tensors_of(problem, read, for_backward)};
}

Element element_of(at::ScalarType type) {
  if (type == at::kFloat) return Element::Float32;
  return type == at::kBFloat16 ? Element::BFloat16 : Element::Float16;
}

void take_places(const Problem& problem, Scalars& scalars) {
  scalars.batch_offset = problem.batch_offset;
  scalars.head_offset = problem.head_offset;
  scalars.key_offset = problem.key_offset;
  scalars.whole_queries = problem.whole_queries;
  scalars.whole_keys = problem.whole_keys;
}

KernelArguments kernel_arguments(const Scalars& scalars, const MaskTensors& masks) {
  return {scalars,
          view_of<bool>(masks.keep),
          view_of_bias(masks.bias),
          data_of<int64_t>(masks.lengths),
          view_of<float>(masks.slopes),
          data_of<float>(masks.sinks)};
}

}  // namespace attentive::kernels
