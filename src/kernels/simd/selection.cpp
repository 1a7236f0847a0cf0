#include "kernels/simd/selection.h"

namespace attentive::kernels::cpu {

Selection select(const CpuFeatures& cpu, std::string_view limit) {
  const bool wide = cpu.avx512 && limit != "avx2" && limit != "default";
  if (wide && cpu.avx512_bf16 && limit != "avx512" && avx512_bf16::code()) {
    const auto without_unit = cpu.fast_pairs ? Bf16Product::Pairs : Bf16Product::Widened;
    return {avx512_bf16::code(), cpu.amx ? Bf16Product::MatrixUnit : without_unit, cpu.avx512_fp16,
            cpu.amx && cpu.avx512_fp16 && cpu.avx512_vbmi ? amx_units() : nullptr};
  }
  if (wide && avx512::code()) return {avx512::code(), Bf16Product::Widened};
  if (cpu.avx2 && limit != "default" && avx2::code()) return {avx2::code(), Bf16Product::Widened};
  if (cpu.neon_bf16 && limit != "default" && neon_bf16::code())
    return {neon_bf16::code(), Bf16Product::Pairs};
  if (cpu.neon && neon::code()) return {neon::code(), Bf16Product::Widened};
  return {portable::code(), Bf16Product::Widened};
}

constinit const Selection* current_selection = nullptr;

const Selection& make_selection() {
  static const Selection here = select(this_cpu(), cpu_limit());
  const Selection* current = nullptr;
  const bool first = __atomic_compare_exchange_n(&current_selection, &current, &here, /*weak=*/false,
                                                 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return first ? here : *current;
}

const bool prefetch_to_l2 = this_cpu().prefetch_to_l2;

SelectionGuard::SelectionGuard(const Selection& selection)
    : selection_(selection),
      before_(__atomic_exchange_n(&current_selection, &selection_, __ATOMIC_ACQ_REL)) {}

SelectionGuard::~SelectionGuard() {
  __atomic_store_n(&current_selection, before_, __ATOMIC_RELEASE);
}

}  // namespace attentive::kernels::cpu
