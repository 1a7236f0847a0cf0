#include "kernels/call_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include "kernels/dropout_counter.h"

namespace attentive::kernels {
namespace {

// Removes bounds that hide nothing, such as that of a single query aligned with the last key.
Band without_idle_bounds(Band band, int64_t queries, int64_t keys) {
  if (queries - 1 + band.lo <= 0) band.lo = -Band::kUnbounded;
  if (band.hi >= keys - 1) band.hi = Band::kUnbounded;
  return band;
}

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

// The bias in an element type that the kernel reads.
at::Tensor bias_of(const Problem& p, Biases read, bool for_backward) {
  const auto type = p.bias.scalar_type();
  const bool as_given =
      type == at::kFloat || (read == Biases::HalfTypes && (type == at::kBFloat16 || type == at::kHalf));
  return watchable(p.bias.detach().to(as_given ? type : at::kFloat), for_backward);
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

// The numbers of a captured tensor as vector code reads them.
at::Tensor numbers_of(const detail::CapturedTensor& captured) {
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

detail::CapturedView view_of_captured(const CapturedInput& input) {
  detail::CapturedView view{.owner = input.owner.get(),
                            .numbers = input.numbers.const_data_ptr(),
                            .rank = static_cast<int>(input.numbers.dim())};
  std::copy(input.numbers.sizes().begin(), input.numbers.sizes().end(), view.sizes.begin());
  std::copy(input.numbers.strides().begin(), input.numbers.strides().end(), view.strides.begin());
  return view;
}

}  // namespace

Band band_of(const AttentionOptions& options, int64_t queries, int64_t keys) {
  Band band{.origin = options.align == Align::TopLeft ? 0 : keys - queries};
  const int64_t longest = queries + keys;  // limits the window so that no sum overflows
  if (options.causal == Causal::BottomRight) band.hi = keys - queries;
  if (options.causal == Causal::TopLeft) band.hi = 0;
  if (options.window.left >= 0) band.lo = band.origin - std::min(options.window.left, longest);
  if (options.window.right >= 0)
    band.hi = std::min(band.hi, band.origin + std::min(options.window.right, longest));
  return without_idle_bounds(band, queries, keys);
}

Band shifted(Band band, int64_t offset, int64_t queries, int64_t keys) {
  if (band.has_lo()) band.lo += offset;
  if (band.has_hi()) band.hi += offset;
  band.origin += offset;
  return without_idle_bounds(band, queries, keys);
}

Problem sequence_of(const Problem& packed, size_t n) {
  const Sequence& place = (*packed.sequences)[n];
  // Cuts a dimension, unless the tensor is broadcast along it.
  const auto cut = [](at::Tensor& x, int64_t dim, int64_t first, int64_t count) {
    if (x.defined() && x.size(dim) > 1) x = x.narrow(dim, first, count);
  };
  Problem one = packed;
  one.sequences.reset();
  one.by_item = false;
  for (auto* x : {&one.q, &one.k, &one.v, &one.keep, &one.bias, &one.key_keep, &one.alibi_slopes})
    cut(*x, 0, place.item, 1);
  one.q = one.q.narrow(2, place.first_query, place.queries);
  one.k = one.k.narrow(2, place.first_key, place.keys);
  one.v = one.v.narrow(2, place.first_key, place.keys);
  for (auto* x : {&one.keep, &one.bias}) {
    cut(*x, 2, place.first_query, place.queries);
    cut(*x, 3, place.first_key, place.keys);
  }
  if (one.key_keep.defined()) one.key_keep = one.key_keep.narrow(1, place.first_key, place.keys);
  one.key_lengths.reset();  // there are no more keys, and no more queries
  one.query_lengths.reset();
  one.band = place.band;
  one.batch_offset += static_cast<int64_t>(n);
  one.whole_queries = place.whole_queries;
  one.whole_keys = place.whole_keys;
  return one;
}

at::Tensor joined(const Problem& packed, std::vector<at::Tensor> parts, bool pairs, double value) {
  if (!packed.by_item) {
    if (parts[0].dim() == 3) return at::cat(parts, 2);
    for (auto& part : parts) part = part.transpose(1, 2);
    return at::cat(parts, 1).transpose(1, 2);  // the tokens lie in memory as (Tq, H, Dv)
  }
  // LibTorch 2.7 cannot pad a tensor without numbers.
  const auto widen = [&](at::Tensor& part, int64_t dim, int64_t before, int64_t after) {
    const auto filled = [&](int64_t count) {
      at::DimVector sizes(part.sizes());
      sizes[dim] = count;
      return at::full(sizes, value, part.options());
    };
    if (before > 0 || after > 0) part = at::cat({filled(before), part, filled(after)}, dim);
  };
  for (size_t n = 0; n < parts.size(); ++n) {
    const auto& place = (*packed.sequences)[n];
    if (pairs) widen(parts[n], 3, 0, packed.keys() - place.keys);
    widen(parts[n], 2, place.first_query, packed.queries() - place.first_query - place.queries);
  }
  return at::cat(parts, 0);
}

Outcome run_by_sequence(const Problem& packed, const std::function<Outcome(const Problem&)>& run) {
  std::vector<at::Tensor> outputs, weights, logsumexps;
  for (size_t n = 0; n < packed.sequences->size(); ++n) {
    auto one = run(sequence_of(packed, n));
    if (!one.verdict.can) return one;
    outputs.push_back(std::move(one.result.output));
    weights.push_back(std::move(one.result.weights));
    logsumexps.push_back(std::move(one.result.logsumexp));
  }
  AttentionResult all{joined(packed, std::move(outputs), /*pairs=*/false, 0.0), {}, {}};
  if (packed.weights != Weights::None) all.weights = joined(packed, std::move(weights), /*pairs=*/true, 0.0);
  if (packed.logsumexp)
    all.logsumexp =
        joined(packed, std::move(logsumexps), /*pairs=*/false, -std::numeric_limits<double>::infinity());
  return {std::move(all), {}};
}

uint64_t dropout_key_of(const Problem& problem) {
  if (!problem.has_dropout()) return 0;
  return problem.dropout_key ? *problem.dropout_key : draw_dropout_key(problem.generator);
}

CallTensors mask_tensors_of(const Problem& p, Biases read, bool for_backward) {
  const std::array<int64_t, 4> pairs = {p.batch(), p.heads(), p.queries(), p.keys()};
  CallTensors masks;
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

std::vector<CapturedInput> captured_inputs(const Problem& problem) {
  std::vector<CapturedInput> inputs;
  for (const auto* function : {problem.score.function().get(), problem.mask.function().get()}) {
    if (!function) continue;
    for (const auto& owner : function->captured()) {
      if (owner->in_place) continue;
      const bool known =
          std::any_of(inputs.begin(), inputs.end(), [&](const auto& input) { return input.owner == owner; });
      if (known) continue;
      auto numbers = numbers_of(*owner);
      // A backward pass cannot save a tensor that was made in inference mode.
      if (numbers.is_inference() && at::GradMode::is_enabled()) numbers = numbers.clone();
      inputs.push_back({owner, std::move(numbers)});
    }
  }
  return inputs;
}

Call call_of(const Problem& p, uint64_t dropout_key) {
  Call call;
  static_cast<Places&>(call) = p;
  call.B = p.batch();
  call.H = p.heads();
  call.Hkv = p.kv_heads();
  call.L = call.rows_of_head = p.queries();
  call.S = call.keys_of_head = p.keys();
  call.D = p.head_dim();
  call.Dv = p.value_dim();
  call.group = call.H / call.Hkv;
  call.element = element_of(p.q.scalar_type());
  call.band = p.band;
  call.rule.scale = static_cast<float>(p.scale.value_or(1.0 / std::sqrt(static_cast<double>(p.head_dim()))));
  call.rule.softcap.cap = static_cast<float>(p.softcap.value_or(0.0));
  call.normalise = p.normalise;
  if (p.has_dropout()) {
    call.dropout = true;
    call.dropout_key = dropout_key;
    call.threshold = keep_threshold(p.dropout_p);
    call.survivor_scale = static_cast<float>(survivor_scale(p.dropout_p));
  }
  if (p.sequences) {
    call.sequences = p.sequences->data();
    call.sequence_count = static_cast<int64_t>(p.sequences->size());
  }
  return call;
}

at::Tensor with_unit_stride(const at::Tensor& x) {
  return x.stride(-1) == 1 || x.size(-1) == 1 ? x : x.contiguous();
}

void point_to(Call& call, CallTensors& tensors) {
  for (auto* rows : {&tensors.q, &tensors.k, &tensors.v}) {
    if (rows->defined()) *rows = with_unit_stride(*rows);
  }
  for (auto* numbers : {&tensors.lengths, &tensors.sinks}) {
    if (numbers->defined()) *numbers = numbers->contiguous();
  }
  for (auto& input : tensors.captured) input.numbers = input.numbers.contiguous();
  call.keep = view_of<bool>(tensors.keep);
  call.bias = view_of_bias(tensors.bias);
  call.key_lengths = data_of<const int64_t>(tensors.lengths);
  call.slopes = view_of<float>(tensors.slopes);
  call.sinks = data_of<const float>(tensors.sinks);
  tensors.views.clear();
  for (const auto& input : tensors.captured) tensors.views.push_back(view_of_captured(input));
  call.user.captured = tensors.views.data();
}

Element element_of(at::ScalarType type) {
  if (type == at::kFloat) return Element::Float32;
  return type == at::kBFloat16 ? Element::BFloat16 : Element::Float16;
}

}  // namespace attentive::kernels
