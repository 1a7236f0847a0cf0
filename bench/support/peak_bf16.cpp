// The limit of bfloat16 products: the registers of the matrix unit if there is one, otherwise the fastest
// product that LibTorch has.

#include <vector>

#include <ATen/native/CPUBlas.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "support/isa.h"
#include "support/peak_loop.h"
#include "support/peaks.h"
#include "support/peaks_amx.h"

namespace bench {
namespace {

constexpr int64_t kTileM = 128, kTileN = 128, kTileK = 512;

// The tile product on which PyTorch builds, and this package where it lacks one; operands are in cache. This
// is the only place in the benchmark that uses ATen's undocumented brgemm.
void tile_products(int64_t repeats) {
  const std::vector<c10::BFloat16> a(kTileM * kTileK, c10::BFloat16(1.0F)),
      b(kTileK * kTileN, c10::BFloat16(1.0F));
  std::vector<float> c(kTileM * kTileN);
  for (int64_t i = 0; i < repeats; ++i) {
    at::native::cpublas::brgemm(kTileM, kTileN, kTileK, kTileK, kTileN, kTileN, /*add_C=*/false, a.data(),
                                b.data(), c.data(), /*is_vnni=*/true);
  }
  at::native::cpublas::brgemm_release();
}

// oneDNN throws if the CPU lacks such a product.
bool has_tile_products() {
  try {
    tile_products(1);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

Peak peak_of(const Loop& loop, int64_t fewest_steps, int64_t most_steps, const char* method) {
  const double rate = loop.measure(fewest_steps, most_steps).per_second;
  return {rate, method, [=](double seconds) { return loop.rate_for(seconds, rate); }};
}

}  // namespace

Peak bf16_peak(int threads, const Peak& fp32) {
  if (isa_in_use().newest && amx_flops_a_step() > 0) {
    return peak_of({[](int64_t steps) { amx_loop(steps); }, amx_flops_a_step(), threads}, 5'000, 80'000,
                   "AMX loop, registers only");
  }
  Peak best;
  if (has_tile_products()) {
    best = peak_of({tile_products, 2.0 * kTileM * kTileN * kTileK, threads}, 1, 64,
                   "brgemm tile 128x128x512 in cache (oneDNN)");
  }
  if (const auto large = large_product(MatrixType::BFloat16); large.per_second > best.rate)
    best = {large.per_second, fmt::format("at::mm {}^3 (oneDNN)", large.size)};
  if (best.rate > fp32.rate) return best;
  return {fp32.rate,
          fmt::format("float32's limit; no product of bfloat16 is faster: {} reaches {:.3g} GF/s",
                      best.method, best.rate / 1e9),
          fp32.probe, true};
}

}  // namespace bench
