#pragma once

// Shared by the tests of products of few rows and of many: drawn operands, exact results, and every set of
// instructions.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "core/cpu_features.h"
#include "kernels/simd/selection.h"

namespace attentive::test {

using kernels::cpu::Bf16Product;
using kernels::cpu::Selection;

struct Autocast {
  Autocast() { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~Autocast() { at::autocast::set_autocast_enabled(at::kCPU, false); }
};

inline constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

/// The selections that this CPU can run within ATEN_CPU_CAPABILITY: each set of vector code, and each way to
/// multiply bfloat16.
inline std::vector<Selection> selections() {
  const auto here = kernels::cpu::selection();
  std::vector<Selection> all{here};
  if (here.bf16 != Bf16Product::Widened) all.push_back({here.code, Bf16Product::Widened});
  if (here.bf16 == Bf16Product::MatrixUnit) all.push_back({here.code, Bf16Product::Pairs});
  const auto& cpu = this_cpu();
  if (cpu.avx512 && here.code->width == 16 && kernels::cpu::avx512::code())
    all.push_back({kernels::cpu::avx512::code(), Bf16Product::Widened});
  if (cpu.avx2 && here.code->width >= 8 && kernels::cpu::avx2::code())
    all.push_back({kernels::cpu::avx2::code(), Bf16Product::Widened});
  if (cpu.neon && kernels::cpu::neon::code())
    all.push_back({kernels::cpu::neon::code(), Bf16Product::Widened});
  all.push_back({kernels::cpu::portable::code(), Bf16Product::Widened});
  return all;
}

inline std::string name_of(const Selection& selection) {
  return std::string(selection.code->name) + (selection.bf16 == Bf16Product::Pairs        ? ", pairs"
                                              : selection.bf16 == Bf16Product::MatrixUnit ? ", matrix unit"
                                                                                          : ", widened");
}

/// The largest relative error of one rounding to the dtype.
inline double rounding(at::ScalarType type) {
  return std::ldexp(1.0, type == at::kBFloat16 ? -8 : type == at::kHalf ? -11 : -24);
}

/// A contiguous tensor that begins in the middle of its memory, at an odd number.
inline at::Tensor random(at::IntArrayRef sizes, at::ScalarType type) {
  int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return at::randn({count + 3}).to(type).narrow(0, 3, count).view(sizes);
}

inline int64_t drawn(int64_t low, int64_t high) {
  return at::randint(low, high + 1, {1}, at::kLong).item<int64_t>();
}

/// A layer of double numbers, and the sums of the magnitudes of its terms, by which errors are measured.
struct Exact {
  at::Tensor value, terms;

  Exact(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    const auto wide = [](const at::Tensor& t) { return t.defined() ? t.to(at::kDouble) : t; };
    value = at::linear(wide(x), wide(weight), wide(bias));
    terms = at::linear(wide(x).abs(), wide(weight).abs(), bias.defined() ? wide(bias).abs() : bias);
  }

  Exact of_first(int64_t rows) const {
    auto part = *this;
    part.value = value.narrow(-2, 0, rows);
    part.terms = terms.narrow(-2, 0, rows);
    return part;
  }
};

/// Whether every number is the rounded sum, computed in float32.
inline bool is_rounded(const at::Tensor& got, const at::Tensor& value, const at::Tensor& terms) {
  const auto allowed = value.abs() * rounding(got.scalar_type()) + terms * 1e-6 + 1e-7;
  return ((got.to(at::kDouble) - value).abs() <= allowed).all().item<bool>();
}

}  // namespace attentive::test
