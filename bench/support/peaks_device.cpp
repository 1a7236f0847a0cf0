// The limits of a GPU as PyTorch's own products and sums reach them, because this package has nothing faster
// than cuBLAS.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "support/device.h"
#include "support/peaks.h"
#include "support/rate.h"
#include "support/timer.h"

namespace bench {
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
