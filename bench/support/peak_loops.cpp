// The loops behind the limits of float32 and of reading memory.

#include <array>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include "support/machine.h"
#include "support/peaks.h"
#include "support/timing.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bench {

// The float32 limit: a loop of fused multiply-adds in registers.

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

// The limit of reading memory, measured by a plain sum.

namespace {

#if defined(__x86_64__)
__attribute__((target("avx512f"))) double sum_avx512(const float* data, long count) {
  std::array<__m512, 8> sums;
  for (auto& sum : sums) sum = _mm512_setzero_ps();
  long i = 0;
  for (; i + 128 <= count; i += 128) {
#pragma GCC unroll 8
    for (int lane = 0; lane < 8; ++lane)
      sums[lane] = _mm512_add_ps(sums[lane], _mm512_loadu_ps(data + i + 16 * lane));
  }
  double total = 0;
  for (const auto& sum : sums) total += _mm512_reduce_add_ps(sum);
  for (; i < count; ++i) total += data[i];
  return total;
}
#endif

double sum_portable(const float* data, long count) {
  std::array<float, 64> sums{};
  long i = 0;
  for (; i + 64 <= count; i += 64) {
    for (int lane = 0; lane < 64; ++lane) sums[lane] += data[i + lane];
  }
  double total = 0;
  for (const float sum : sums) total += sum;
  for (; i < count; ++i) total += data[i];
  return total;
}

}  // namespace

double read_all(const float* data, long count) {
  auto sum = sum_portable;
#if defined(__x86_64__)
  static const bool avx512 = isa_in_use().avx512;
  if (avx512) sum = sum_avx512;
#endif
  const int64_t threads = at::get_num_threads();
  std::vector<double> parts(static_cast<size_t>(threads), 0.0);
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const long from = count * part / threads, to = count * (part + 1) / threads;
      parts[static_cast<size_t>(part)] = sum(data + from, to - from);
    }
  });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

Peak read_peak() {
  constexpr int64_t kMiB = (1 << 20) / sizeof(float);
  at::Tensor data;
  const auto read = measure_rate(
      {.smallest = 64, .largest = 1024, .runs = 4, .budget = 2.0},  // 1 GiB: larger than any cache
      [](int64_t size) { return static_cast<double>(size) * (1 << 20); },
      [&](int64_t size) {
        const int64_t count = size * kMiB;
        if (!data.defined() || data.numel() < count) data = at::ones({count}, at::kFloat);
        const Timer timer;
        volatile double sink = read_all(data.const_data_ptr<float>(), static_cast<long>(count));
        (void)sink;
        return timer.seconds();
      });
  return {read.per_second, fmt::format("sum over {} MiB of float32", read.size)};
}

}  // namespace bench
