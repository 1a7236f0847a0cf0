#include "kernels/simd/selection.h"

#include <atomic>
#include <cstdlib>

namespace attentive::kernels::cpu {
namespace {

std::atomic<const Selection*> forced{nullptr};

Selection select_here() {
  const char* limit = std::getenv("ATEN_CPU_CAPABILITY");
  return select(this_cpu(), limit ? limit : "");
}

}  // namespace

Selection select(const CpuFeatures& cpu, std::string_view limit) {
  const bool wide = cpu.avx512 && limit != "avx2" && limit != "default";
  if (wide && cpu.avx512_bf16 && limit != "avx512" && simd_avx512_bf16()) {
    const auto own = cpu.fast_pairs ? Bf16Product::Pairs : Bf16Product::Widened;
    return {simd_avx512_bf16(), cpu.amx ? Bf16Product::MatrixUnit : own};
  }
  if (wide && simd_avx512()) return {simd_avx512(), Bf16Product::Widened};
  if (cpu.avx2 && limit != "default" && simd_avx2()) return {simd_avx2(), Bf16Product::Widened};
  return {simd_portable(), Bf16Product::Widened};
}

const Selection& selection() {
  static const Selection here = select_here();
  const auto* other = forced.load(std::memory_order_acquire);
  return other ? *other : here;
}

const Simd& simd() {
  return *selection().simd;
}

SelectionGuard::SelectionGuard(const Selection& selection)
    : selection_(selection), before_(forced.exchange(&selection_, std::memory_order_acq_rel)) {}

SelectionGuard::~SelectionGuard() {
  forced.store(before_, std::memory_order_release);
}

}  // namespace attentive::kernels::cpu
