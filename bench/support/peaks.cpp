#include "support/peaks.h"

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>

#include "support/peaks_amx.h"
#include "support/timer.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bench {
namespace {

constexpr long kFmaSteps = 2'000'000;

#if defined(__x86_64__)
// Independent chains, more than latency x ports, so that only the multipliers bound the loop.
__attribute__((target("avx512f"))) float fma_avx512(long steps) {
  std::array<__m512, 24> sums;
  for (auto& sum : sums) sum = _mm512_set1_ps(1.0F);
  const __m512 factor = _mm512_set1_ps(0.999F), term = _mm512_set1_ps(1e-3F);
  for (long step = 0; step < steps; ++step) {
#pragma GCC unroll 24
    for (auto& sum : sums) sum = _mm512_fmadd_ps(sum, factor, term);
  }
  float total = 0;
  for (const auto& sum : sums) total += _mm512_reduce_add_ps(sum);
  return total;
}

__attribute__((target("avx2,fma"))) float fma_avx2(long steps) {
  std::array<__m256, 12> sums;
  for (auto& sum : sums) sum = _mm256_set1_ps(1.0F);
  const __m256 factor = _mm256_set1_ps(0.999F), term = _mm256_set1_ps(1e-3F);
  for (long step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = _mm256_fmadd_ps(sum, factor, term);
  }
  float total = 0;
  for (const auto& sum : sums) total += _mm256_cvtss_f32(sum);
  return total;
}
#endif

template <class Body>
double best_seconds(int runs, Body&& body) {
  double best = 1e30;
  for (int run = 0; run < runs; ++run) {
    const Timer timer;
    body();
    best = std::min(best, timer.seconds());
  }
  return best;
}

// The same work on every thread at once.
void on_every_thread(int threads, const std::function<void()>& work) {
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) work();
  });
}

double mm_rate(at::ScalarType type, int64_t n) {
  const auto a = at::ones({n, n}, type), b = at::ones({n, n}, type);
  auto c = at::empty({n, n}, type);
  at::mm_out(c, a, b);
  const double seconds = best_seconds(8, [&] { at::mm_out(c, a, b); });
  return 2.0 * static_cast<double>(n * n * n) / seconds;
}

struct FmaLoop {
  float (*run)(long steps) = nullptr;
  double flops_a_step = 0;
  const char* name = "";
};

FmaLoop fma_loop() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {fma_avx512, 24.0 * 16 * 2, "FMA loop, 512 bit"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {fma_avx2, 12.0 * 8 * 2, "FMA loop, 256 bit"};
#endif
  return {};
}

double fma_rate(int threads, int runs, long steps) {
  const auto loop = fma_loop();
  volatile float sink = 0;
  const double seconds =
      best_seconds(runs, [&] { on_every_thread(threads, [&] { sink = loop.run(steps); }); });
  return loop.flops_a_step * static_cast<double>(steps) * threads / seconds;
}

void measure_fp32(Peaks& peaks) {
  if (const auto loop = fma_loop(); loop.run) {
    peaks.fp32 = fma_rate(peaks.threads, 12, kFmaSteps);
    peaks.fp32_method = loop.name;
    return;
  }
  peaks.fp32 = mm_rate(at::kFloat, 2048);
  peaks.fp32_method = "at::mm 2048^3 (no FMA loop for this CPU)";
}

constexpr int64_t kTileM = 128, kTileN = 128, kTileK = 512;

// The tile product that PyTorch builds on, and this package where it has none of its own; operands in cache.
// ATen's undocumented brgemm stands in this one place of the benchmark. 0: oneDNN has no such product on this
// CPU.
double brgemm_bf16_rate(int threads, int runs, int64_t repeats) {
  const auto work = [=] {
    const std::vector<c10::BFloat16> a(kTileM * kTileK, c10::BFloat16(1.0F)),
        b(kTileK * kTileN, c10::BFloat16(1.0F));
    std::vector<float> c(kTileM * kTileN);
    for (int64_t i = 0; i < repeats; ++i) {
      at::native::cpublas::brgemm(kTileM, kTileN, kTileK, kTileK, kTileN, kTileN, /*add_C=*/false, a.data(),
                                  b.data(), c.data(), /*is_vnni=*/true);
    }
    at::native::cpublas::brgemm_release();
  };
  try {
    work();
  } catch (const c10::Error&) {
    return 0;
  }
  const double seconds = best_seconds(runs, [&] { on_every_thread(threads, work); });
  return 2.0 * kTileM * kTileN * kTileK * static_cast<double>(repeats) * threads / seconds;
}

constexpr const char* kTileMethod = "brgemm tile 128x128x512 in cache (oneDNN)";

constexpr const char* kAmxMethod = "AMX loop, registers only";
constexpr long kAmxSteps = 500'000;

double amx_rate(int threads, int runs, long steps) {
  const double seconds = best_seconds(runs, [&] { on_every_thread(threads, [&] { amx_loop(steps); }); });
  return amx_flops_a_step() * static_cast<double>(steps) * threads / seconds;
}

void measure_bf16(Peaks& peaks) {
  if (amx_flops_a_step() > 0) {
    peaks.bf16 = amx_rate(peaks.threads, 12, kAmxSteps);
    peaks.bf16_method = kAmxMethod;
    return;
  }
  const double tile = brgemm_bf16_rate(peaks.threads, 12, 500), large = mm_rate(at::kBFloat16, 2048);
  peaks.bf16 = std::max(tile, large);
  peaks.bf16_method = tile >= large ? kTileMethod : "at::mm 2048^3 (oneDNN)";
}

void measure_read(Peaks& peaks) {
  constexpr int64_t count = 256L << 20;  // 1 GiB, larger than any cache
  const auto data = at::ones({count}, at::kFloat);
  volatile double sink = 0;
  const double seconds = best_seconds(4, [&] { sink = read_all(data.const_data_ptr<float>(), count); });
  peaks.read = 4.0 * count / seconds;
  peaks.read_method = "sum over 1 GiB of float32";
}

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
  if (__builtin_cpu_supports("avx512f")) sum = sum_avx512;
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

double probe(const Peaks& peaks, Limit limit, double seconds) {
  if (limit == Limit::Fp32) {
    if (const auto loop = fma_loop(); loop.run) {
      const double steps = peaks.fp32 / peaks.threads * seconds / loop.flops_a_step;
      return fma_rate(peaks.threads, 1, std::max(1000L, static_cast<long>(steps)));
    }
  }
  if (limit == Limit::Bf16 && peaks.bf16_method == kAmxMethod) {
    const double steps = peaks.bf16 / peaks.threads * seconds / amx_flops_a_step();
    return amx_rate(peaks.threads, 1, std::max(1000L, static_cast<long>(steps)));
  }
  if (limit == Limit::Bf16 && peaks.bf16_method == kTileMethod) {
    const double repeats = peaks.bf16 / peaks.threads * seconds / (2.0 * kTileM * kTileN * kTileK);
    return brgemm_bf16_rate(peaks.threads, 1, std::max<int64_t>(1, static_cast<int64_t>(repeats)));
  }
  return 0;
}

Peaks measure_peaks(int threads) {
  Peaks peaks;
  peaks.threads = threads;
  measure_fp32(peaks);
  measure_bf16(peaks);
  measure_read(peaks);
  return peaks;
}

}  // namespace bench
