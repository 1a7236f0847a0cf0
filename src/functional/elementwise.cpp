#include "functional/elementwise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <attentive/core/options.h>

#include "core/autocast_modes.h"
#include "kernels/dropout_counter.h"
#include "kernels/gemm/scratch.h"
#include "kernels/simd/elementwise.h"
#include "kernels/simd/selection.h"

namespace attentive {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kNumbersOfBlock = 128, kLanes = 16;
constexpr int64_t kDropoutGrain = 128;  // blocks
constexpr int64_t kGeluGrain = 1 << 14;

using Bits = std::array<uint16_t, kNumbersOfBlock / kLanes>;

// Calls use(n, bits, count) in parallel for every block of up to 128 numbers from n on; bit i % 16 of bits[i
// / 16] is set if number n + i survives.
template <class Use>
void for_each_drawn_block(int64_t numel, uint64_t key, double p, const Use& use) {
  const auto threshold = kernels::keep_threshold(p);
  const auto draw = kernels::cpu::elementwise().dropout_bits;
  at::parallel_for(
      0, (numel + kNumbersOfBlock - 1) / kNumbersOfBlock, kDropoutGrain, [&](int64_t begin, int64_t end) {
        Bits bits{};
        for (int64_t block = begin; block < end; ++block) {
          draw({key, threshold, 0, 0, 0, 1, static_cast<uint32_t>(block), bits.data(), 0, 1});
          use(block * kNumbersOfBlock, bits, std::min(kNumbersOfBlock, numel - block * kNumbersOfBlock));
        }
      });
}

inline bool survives(const uint16_t* bits, int64_t i) {
  return ((static_cast<uint32_t>(bits[i / kLanes]) >> (i % kLanes)) & 1u) != 0;
}

at::Tensor keep_mask(at::IntArrayRef sizes, uint64_t key, double p) {
  auto mask = at::empty(sizes, at::kBool);
  auto* out = mask.mutable_data_ptr<bool>();
  for_each_drawn_block(mask.numel(), key, p, [&](int64_t n, const Bits& bits, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[n + i] = survives(bits.data(), i);
  });
  return mask;
}

at::Tensor times_mask(const at::Tensor& x, uint64_t key, double p) {
  return x * keep_mask(x.sizes(), key, p).to(x.scalar_type()).mul_(kernels::survivor_scale(p));
}

// Drops and scales the numbers of x and adds `residual` if there is one; both are contiguous float32.
at::Tensor dropped(const at::Tensor& x, const float* residual, uint64_t key, double p) {
  auto y = at::empty_like(x);
  const auto* from = x.const_data_ptr<float>();
  auto* to = y.mutable_data_ptr<float>();
  const auto scale = static_cast<float>(kernels::survivor_scale(p));
  const auto& functions = kernels::cpu::elementwise();
  for_each_drawn_block(x.numel(), key, p, [&](int64_t n, const Bits& bits, int64_t count) {
    functions.scale_survivors(from + n, bits.data(), scale, to + n, count);
    if (residual != nullptr) functions.add(residual + n, to + n, count);
  });
  return y;
}

class FeatureDropout : public torch::autograd::Function<FeatureDropout> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const std::optional<at::Tensor>& residual, double p) {
    const auto key = kernels::draw_dropout_key(std::nullopt);
    ctx->saved_data["key"] = static_cast<int64_t>(key);
    ctx->saved_data["p"] = p;
    ctx->saved_data["residual"] = residual.has_value();
    return dropped(x, residual ? residual->const_data_ptr<float>() : nullptr, key, p);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto key = static_cast<uint64_t>(ctx->saved_data["key"].toInt());
    const auto p = ctx->saved_data["p"].toDouble();
    variable_list out(3);
    // A second derivative needs operations that autograd records.
    if (ctx->needs_input_grad(0)) {
      out[0] = at::GradMode::is_enabled() ? times_mask(grads[0], key, p)
                                          : dropped(grads[0].resolve_neg().contiguous(), nullptr, key, p);
    }
    if (ctx->saved_data["residual"].toBool() && ctx->needs_input_grad(1)) out[1] = grads[0];
    return out;
  }
};

class Gelu : public torch::autograd::Function<Gelu> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    auto y = at::empty_like(x);
    const auto* from = x.const_data_ptr<float>();
    auto* to = y.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kGeluGrain, [&](int64_t begin, int64_t end) {
      kernels::cpu::elementwise().gelu(from + begin, to + begin, end - begin);
    });
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto x = ctx->get_saved_variables()[0];
    // A second derivative needs operations that autograd records.
    if (at::GradMode::is_enabled()) return {at::gelu_backward(grads[0], x, "tanh")};
    const auto from = x.contiguous(), grad = grads[0].resolve_neg().contiguous();
    auto out = at::empty_like(from);
    const auto *at_x = from.const_data_ptr<float>(), *at_grad = grad.const_data_ptr<float>();
    auto* to = out.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kGeluGrain, [&](int64_t begin, int64_t end) {
      kernels::cpu::elementwise().gelu_gradient(at_x + begin, at_grad + begin, to + begin, end - begin);
    });
    return {out};
  }
};

// Whether the Counter stream decides which numbers survive.
bool counted(const at::Tensor& x, double p) {
  return x.is_cpu() && at::isFloatingType(x.scalar_type()) && p > 0 && p < 1 &&
         DropoutStreamGuard::current() != DropoutStream::Aten;
}

}  // namespace

at::Tensor drop_features(const at::Tensor& x, double p, bool training) {
  if (!training || p == 0) return x;
  if (!counted(x, p)) return at::dropout(x, p, /*train=*/true);
  if (is_contiguous_cpu(x)) return FeatureDropout::apply(x, std::optional<at::Tensor>(), p);
  return times_mask(x, kernels::draw_dropout_key(std::nullopt), p);
}

at::Tensor add_dropped(const at::Tensor& residual, const at::Tensor& x, double p, bool training) {
  if (training && counted(x, p) && is_contiguous_cpu(x) && is_contiguous_cpu(residual) &&
      residual.sizes() == x.sizes()) {
    return FeatureDropout::apply(x, std::optional(residual), p);
  }
  return residual + drop_features(x, p, training);
}

at::Tensor gelu_tanh(const at::Tensor& x) {
  return is_contiguous_cpu(x) ? Gelu::apply(x) : at::gelu(x, "tanh");
}

namespace {

using kernels::cpu::elementwise;
using kernels::cpu::for_numbers;
using kernels::cpu::Scratch;

constexpr int64_t kNumbersOfThread = 1 << 15;  // fewer are not worth waking a thread

bool is_fusible(const at::Tensor& x) {
  return !at::GradMode::is_enabled() && x.is_cpu() && x.numel() > 0 && !is_autocast(x.device());
}

// Calls work(begin, end) for ranges of rows of n numbers each, on all threads if there are many.
template <class Work>
void for_rows(int64_t rows, int64_t n, const Work& work) {
  at::parallel_for(0, rows, std::max<int64_t>(kNumbersOfThread / n, 1), work);
}

template <class T>
void rms_norm_rows(const at::Tensor& x, const at::Tensor& weight, double eps, double offset,
                   const at::Tensor& out) {
  const auto n = x.size(-1);
  const auto* const data = static_cast<const T*>(x.const_data_ptr());
  auto* const result = static_cast<T*>(out.mutable_data_ptr());
  for_rows(x.numel() / n, n, [&](int64_t begin, int64_t end) {
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    auto *const factors = scratch.take<float>(n), *const row = scratch.take<float>(n);
    elementwise().convert(static_cast<const T*>(weight.const_data_ptr()), factors, n);
    if (offset != 0) {
      for (int64_t i = 0; i < n; ++i) factors[i] += static_cast<float>(offset);
    }
    for (int64_t r = begin; r < end; ++r) {
      elementwise().convert(data + r * n, row, n);
      const auto mean = static_cast<double>(elementwise().dot(row, row, n)) / static_cast<double>(n);
      elementwise().store_scaled(row, static_cast<float>(1.0 / std::sqrt(mean + eps)), row, n);
      elementwise().multiply_by(factors, row, n);
      elementwise().convert(row, result + r * n, n);
    }
  });
}

template <class T>
void rotate_rows(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& out) {
  const auto heads = x.size(1), tokens = x.size(2), n = x.size(3);
  const auto* const data = static_cast<const T*>(x.const_data_ptr());
  const auto* const cosines = static_cast<const T*>(cos.const_data_ptr());
  const auto* const sines = static_cast<const T*>(sin.const_data_ptr());
  auto* const result = static_cast<T*>(out.mutable_data_ptr());
  // All heads of a token, which a projection leaves side by side.
  for_rows(x.size(0) * tokens, heads * n, [&](int64_t begin, int64_t end) {
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    auto *const from = scratch.take<float>(n), *const to = scratch.take<float>(n),
                *const c = scratch.take<float>(n / 2), *const s = scratch.take<float>(n / 2);
    for (int64_t row = begin; row < end; ++row) {
      const auto b = row / tokens, t = row % tokens;
      elementwise().convert(cosines + t * n / 2, c, n / 2);
      elementwise().convert(sines + t * n / 2, s, n / 2);
      for (int64_t h = 0; h < heads; ++h) {
        elementwise().convert(data + b * x.stride(0) + h * x.stride(1) + t * x.stride(2), from, n);
        elementwise().rotate_halves(from, c, s, to, n / 2);
        elementwise().convert(to, result + ((b * heads + h) * tokens + t) * n, n);
      }
    }
  });
}

}  // namespace

at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, double offset) {
  const auto type = x.scalar_type();
  if (!is_fusible(x) || !is_contiguous_cpu(x, type) || !is_contiguous_cpu(weight, type)) return {};
  at::Tensor out;
  for_numbers(type, [&](auto number) {
    out = at::empty(x.sizes(), x.options());
    rms_norm_rows<decltype(number)>(x, weight, eps, offset, out);
  });
  return out;
}

at::Tensor fused_rotated_halves(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto type = x.scalar_type();
  if (!is_fusible(x) || x.dim() != 4 || x.layout() != at::kStrided || x.is_neg() || x.stride(3) != 1)
    return {};
  if (!is_not_subclass(x)) return {};
  if (!is_contiguous_cpu(cos, type) || !is_contiguous_cpu(sin, type)) return {};
  at::Tensor out;
  for_numbers(type, [&](auto number) {
    out = at::empty(x.sizes(), x.options());
    rotate_rows<decltype(number)>(x, cos, sin, out);
  });
  return out;
}

}  // namespace attentive
