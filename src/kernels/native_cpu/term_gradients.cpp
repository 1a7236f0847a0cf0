#include "kernels/native_cpu/term_gradients.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "core/memory.h"

namespace attentive::kernels::native_cpu {
namespace {

// Adds up the terms (B, H, N) of rows or keys to `sizes`, which has as many dimensions and broadcasts to
// (B, H, N). The order is fixed: LibTorch's sum over several dimensions would take a head's terms in an order
// that depends on the other heads and on the number of threads.
at::Tensor sum_in_order(const at::Tensor& terms, at::IntArrayRef sizes) {
  const auto sums = at::zeros(sizes, terms.options());
  std::vector<double> totals(static_cast<size_t>(sums.numel()), 0.0);
  const int64_t items = terms.size(0), heads = terms.size(1), count = terms.size(2);
  const int64_t step_b = sizes[0] == 1 ? 0 : sizes[1] * sizes[2], step_h = sizes[1] == 1 ? 0 : sizes[2],
                step = sizes[2] == 1 ? 0 : 1;
  const auto* term = terms.const_data_ptr<float>();
  for (int64_t b = 0; b < items; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t n = 0; n < count; ++n)
        totals[static_cast<size_t>(b * step_b + h * step_h + n * step)] += *term++;
    }
  }
  std::copy(totals.begin(), totals.end(), sums.mutable_data_ptr<float>());
  return sums;
}

}  // namespace

TermGradients::TermGradients(const Call& call, const Wanted& wanted, const at::TensorOptions& floats)
    : wanted_(wanted), packed_(call.sequences != nullptr) {
  // Sequences leave out what is no part of them.
  const auto numbers = [&](at::IntArrayRef sizes, at::ScalarType type) {
    const auto of_type = floats.dtype(type);
    return packed_ ? at::zeros(sizes, of_type) : advise_huge_pages(at::empty(sizes, of_type));
  };
  const auto terms = [&](int64_t count) { return numbers({call.B, call.H, count}, at::kFloat); };
  if (wanted.sinks) sinks_ = terms(call.L);
  if (!wanted.slopes.empty()) slopes_ = terms(call.S);
  if (wanted.bias.empty()) return;
  const auto& sizes = wanted.bias;
  if (sizes[3] == 1) {
    by_query_ = terms(call.L);
  } else if (sizes[2] == 1) {
    by_key_ = terms(call.S);
  } else if (sizes[0] == call.B && sizes[1] == call.H && call.element == element_of(wanted.bias_type)) {
    pairs_ = numbers(sizes, wanted.bias_type);
  } else {
    pair_sums_ = numbers(sizes, at::kFloat);
  }
}

float* TermGradients::sinks() const {
  return data_of<float>(sinks_);
}

template <class T>
cpu::LogitGradients<T> TermGradients::logits() const {
  cpu::LogitGradients<T> result{.by_key = data_of<float>(by_key_),
                                .by_query = data_of<float>(by_query_),
                                .slopes = data_of<float>(slopes_),
                                .begun = packed_};
  result.pairs = rows_of<T>(pairs_);
  if (pair_sums_.defined()) {
    result.pair_sums = rows_of<float>(pair_sums_);
    if (pair_sums_.size(0) == 1) result.pair_sums.b = 0;
    if (pair_sums_.size(1) == 1) result.pair_sums.h = 0;
  }
  return result;
}

template cpu::LogitGradients<float> TermGradients::logits() const;
template cpu::LogitGradients<cpu::bf16_t> TermGradients::logits() const;
template cpu::LogitGradients<cpu::f16_t> TermGradients::logits() const;

CapturedGradients::CapturedGradients(const Call& call, const CallTensors* tensors) {
  if (!tensors) return;
  constexpr int64_t kMostSums = 8, kMostCapturedNumbers = int64_t{1} << 24;
  int64_t numbers = 1;
  for (const auto& input : tensors->captured) {
    if (!input.owner->indices) numbers += input.numbers.numel();
  }
  const int64_t lanes =
      std::clamp<int64_t>(std::min(kMostCapturedNumbers / numbers, call.B * call.Hkv), 1, kMostSums);
  for (const auto& input : tensors->captured) {
    at::DimVector sizes{lanes};
    for (const int64_t size : input.numbers.sizes()) sizes.push_back(size);
    sums_.push_back(input.owner->indices ? at::Tensor() : at::zeros(sizes, input.numbers.options()));
  }
  for (int64_t lane = 0; lane < lanes; ++lane) {
    auto views = tensors->views;
    for (size_t n = 0; n < views.size(); ++n) {
      if (!sums_[n].defined()) continue;
      const auto sum = sums_[n].select(0, lane);
      views[n].gradient = sum.mutable_data_ptr<float>();
    }
    lanes_.push_back(std::move(views));
  }
}

std::vector<at::Tensor> CapturedGradients::finish() const {
  std::vector<at::Tensor> result;
  for (const auto& sums : sums_) {
    if (!sums.defined()) {
      result.emplace_back();
      continue;
    }
    auto total = sums.select(0, 0).clone();
    for (int64_t lane = 1; lane < sums.size(0); ++lane) total.add_(sums.select(0, lane));
    result.push_back(total);
  }
  return result;
}

void TermGradients::finish(Gradients& gradients) const {
  if (sinks_.defined()) gradients.sinks = sum_in_order(sinks_, {1, sinks_.size(1), 1}).view(-1);
  if (slopes_.defined())
    gradients.alibi_slopes = sum_in_order(slopes_, {wanted_.slopes[0], wanted_.slopes[1], 1}).squeeze(2);
  if (pairs_.defined()) gradients.bias = pairs_;
  if (pair_sums_.defined()) gradients.bias = pair_sums_.to(wanted_.bias_type);
  if (by_key_.defined() || by_query_.defined()) {
    const auto& sizes = wanted_.bias;
    const auto& terms = by_key_.defined() ? by_key_ : by_query_;
    gradients.bias = sum_in_order(terms, {sizes[0], sizes[1], sizes[2] * sizes[3]}).view(sizes);
  }
}

}  // namespace attentive::kernels::native_cpu
