// The float32 limit: a loop of fused multiply-adds in registers.

#include <array>

#include <fmt/format.h>

#include "support/isa.h"
#include "support/peak_loop.h"
#include "support/peaks.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bench {
namespace {

#if defined(__x86_64__)
// Hides a number from the compiler: clang finds that x * 0.999 + 0.001 keeps 1 and removes the loop.
inline float unknown(float x) {
  __asm__ volatile("" : "+x"(x));
  return x;
}

// More independent chains than latency x ports, so that only the multipliers limit the loop.
__attribute__((target("avx512f"))) float fma_avx512(int64_t steps) {
  std::array<__m512, 24> sums;
  for (auto& sum : sums) sum = _mm512_set1_ps(1.0F);
  const __m512 factor = _mm512_set1_ps(unknown(0.999F)), term = _mm512_set1_ps(unknown(1e-3F));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 24
    for (auto& sum : sums) sum = _mm512_fmadd_ps(sum, factor, term);
  }
  float total = 0;
  for (const auto& sum : sums) total += _mm512_reduce_add_ps(sum);
  return total;
}

__attribute__((target("avx2,fma"))) float fma_avx2(int64_t steps) {
  std::array<__m256, 12> sums;
  for (auto& sum : sums) sum = _mm256_set1_ps(1.0F);
  const __m256 factor = _mm256_set1_ps(unknown(0.999F)), term = _mm256_set1_ps(unknown(1e-3F));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = _mm256_fmadd_ps(sum, factor, term);
  }
  float total = 0;
  for (const auto& sum : sums) total += _mm256_cvtss_f32(sum);
  return total;
}
#endif

struct FmaLoop {
  float (*run)(int64_t steps) = nullptr;
  double flops_a_step = 0;
  const char* name = "";
};

FmaLoop fma_loop() {
#if defined(__x86_64__)
  const auto isa = isa_in_use();
  if (isa.avx512) return {fma_avx512, 24.0 * 16 * 2, "FMA loop, 512 bit"};
  if (isa.avx2) return {fma_avx2, 12.0 * 8 * 2, "FMA loop, 256 bit"};
#endif
  return {};
}

}  // namespace

Peak fp32_peak(int threads) {
  const auto fma = fma_loop();
  if (!fma.run) {
    const auto product = large_product(MatrixType::Float);
    return {product.per_second, fmt::format("at::mm {}^3; no FMA loop for these instructions", product.size)};
  }
  const Loop loop{[run = fma.run](int64_t steps) {
                    volatile float sink = run(steps);
                    (void)sink;
                  },
                  fma.flops_a_step, threads};
  const double rate = loop.measure(10'000, 320'000).per_second;
  return {rate, fma.name, [=](double seconds) { return loop.rate_for(seconds, rate); }};
}

}  // namespace bench
