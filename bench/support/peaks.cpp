#include "support/peaks.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "support/machine.h"
#include "support/timing.h"

namespace bench {

// In peaks_amx.cpp, which includes no header of this package. Flops of a step; 0 if there is no matrix unit.
double amx_flops_a_step();
// Multiplies registers of the matrix unit only, without loads or stores.
void amx_loop(long steps);

double Loop::rate_over(int64_t steps) const {
  const Timer timer;
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run(steps);
  });
  return flops_a_step * static_cast<double>(steps) * threads / std::max(timer.seconds(), 1e-9);
}

double Loop::rate_for(double seconds, double rate) const {
  return rate_over(std::max<int64_t>(1, static_cast<int64_t>(rate / threads * seconds / flops_a_step)));
}

Rate Loop::measure(int64_t fewest_steps, int64_t most_steps) const {
  const auto work = [this](int64_t steps) { return flops_a_step * static_cast<double>(steps) * threads; };
  return measure_rate({.smallest = fewest_steps, .largest = most_steps, .runs = 100}, work,
                      [&](int64_t steps) { return work(steps) / rate_over(steps); });
}

Rate large_product(MatrixType type) {
  const auto dtype = type == MatrixType::Float ? at::kFloat : at::kBFloat16;
  const auto work = [](int64_t n) { return 2.0 * static_cast<double>(n * n * n); };
  return measure_rate({.smallest = 64, .largest = 2048}, work, [&](int64_t n) {
    const auto a = at::ones({n, n}, dtype), b = at::ones({n, n}, dtype);
    auto c = at::empty({n, n}, dtype);
    const Timer timer;
    at::mm_out(c, a, b);
    return timer.seconds();
  });
}

// The limit of bfloat16 products: the registers of the matrix unit if there is one, otherwise the fastest
// product that LibTorch has.

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

const Peak* Peaks::find(Limit limit) const {
  switch (limit) {
    case Limit::None:
      break;
    case Limit::Fp32:
      return &fp32;
    case Limit::Bf16:
      return &bf16;
    case Limit::Read:
      return &read;
  }
  return nullptr;
}

void Peaks::raise(Limit limit, double rate) {
  const bool shared = bf16.borrowed && (limit == Limit::Fp32 || limit == Limit::Bf16);
  if (limit == Limit::Fp32 || shared) fp32.rate = std::max(fp32.rate, rate);
  if (limit == Limit::Bf16 || shared) bf16.rate = std::max(bf16.rate, rate);
  if (limit == Limit::Read) read.rate = std::max(read.rate, rate);
}

double probe(const Peaks& peaks, Limit limit, double seconds) {
  const auto* peak = peaks.find(limit);
  return peak && peak->probe ? peak->probe(seconds) : 0;
}

void say_peak(const std::function<void(const std::string&)>& say, const char* name, const char* unit,
              const Peak& peak) {
  say(fmt::format("{} {:.4g} {} ({})", name, peak.rate / 1e9, unit, peak.method));
}

Peaks measure_peaks(int threads, const std::function<void(const std::string&)>& say) {
  Peaks peaks;
  peaks.threads = threads;
  peaks.fp32 = fp32_peak(threads);
  say_peak(say, "fp32", "GF/s", peaks.fp32);
  peaks.bf16 = bf16_peak(threads, peaks.fp32);
  say_peak(say, "bf16", "GF/s", peaks.bf16);
  peaks.read = read_peak();
  say_peak(say, "read", "GB/s", peaks.read);
  return peaks;
}

// The limits of a GPU as PyTorch's own products and sums reach them, because this package has nothing faster
// than cuBLAS.

namespace {

// One kind of work on tensors of a given size, which are made again when the size changes.
class Work {
 public:
  Work(at::Device device, std::function<at::Tensor(int64_t)> make,
       std::function<at::Tensor(const at::Tensor&)> run)
      : device_(device), make_(std::move(make)), run_(std::move(run)) {}

  double seconds(int64_t size, int times = 1) {
    if (size != size_) {
      numbers_ = at::Tensor();
      numbers_ = make_(size);
      size_ = size;
      run_(numbers_);  // selects and loads the kernel
    }
    finish(device_);
    const Timer timer;
    for (int i = 0; i < times; ++i) run_(numbers_);
    finish(device_);
    return timer.seconds();
  }

 private:
  at::Device device_;
  std::function<at::Tensor(int64_t)> make_;
  std::function<at::Tensor(const at::Tensor&)> run_;
  at::Tensor numbers_;
  int64_t size_ = 0;
};

Peak peak_of_work(Work work, const Effort& effort, double (*flops_or_bytes)(int64_t), const char* method) {
  const auto best = measure_rate(effort, flops_or_bytes, [&](int64_t size) { return work.seconds(size); });
  const double amount = flops_or_bytes(best.size), once = amount / best.per_second;
  const auto again = [=](double seconds) mutable {
    const int times = std::max(1, static_cast<int>(seconds / once));
    return amount * times / work.seconds(best.size, times);
  };
  return {best.per_second, fmt::format(fmt::runtime(method), best.size), again};
}

// A CPU stands in for a GPU only where the program is tested.
Effort effort_on(at::Device device, int64_t smallest, int64_t largest) {
  if (device.is_cpu()) return {.smallest = smallest, .largest = smallest, .runs = 2, .budget = 0.1};
  return {.smallest = smallest, .largest = largest, .runs = 8, .budget = 1.5};
}

Peak product_peak(at::Device device, at::ScalarType type, const char* method) {
  const auto make = [=](int64_t n) { return at::randn({n, n}, at::TensorOptions(device)).to(type); };
  return peak_of_work(
      {device, make, [](const at::Tensor& x) { return at::mm(x, x); }}, effort_on(device, 512, 8192),
      [](int64_t n) {
        return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
      },
      method);
}

}  // namespace

Peaks measure_device_peaks(at::Device device, const std::function<void(const std::string&)>& say) {
  Peaks peaks;
  peaks.threads = at::get_num_threads();
  peaks.fp32 = product_peak(device, at::kFloat, "at::mm {}^3 without TF32");
  say_peak(say, "fp32", "GF/s", peaks.fp32);
  peaks.bf16 = product_peak(device, at::kBFloat16, "at::mm {}^3");
  say_peak(say, "bf16", "GF/s", peaks.bf16);
  const auto make = [=](int64_t mib) { return at::ones({mib << 18}, at::TensorOptions(device)); };
  peaks.read = peak_of_work(
      {device, make, [](const at::Tensor& x) { return x.sum(); }}, effort_on(device, 64, 1024),
      [](int64_t mib) { return static_cast<double>(mib) * (1 << 20); }, "at::sum over {} MiB of float32");
  say_peak(say, "read", "GB/s", peaks.read);
  return peaks;
}

}  // namespace bench
