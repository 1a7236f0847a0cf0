// Backend::Torch on the CPU passes PyTorch's kernel a mask of zeros and checks the logsumexp of every row
// (docs/options.md). Measures this against the kernel alone, alternating, on one thread, in CPU time.
//
//   zero_mask_bench

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include "support/timing.h"

namespace {

struct Shape {
  int64_t batch, queries, keys;
  bool causal;
};

double microseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

double time_of(const std::function<void()>& call) {
  const double start = microseconds();
  call();
  return microseconds() - start;
}

template <class T>
int64_t odd_numbers(const at::Tensor& x) {
  const T* const data = x.const_data_ptr<T>();
  return std::count_if(data, data + x.numel(),
                       [](T number) { return !std::isfinite(number) || number == 0; });
}

void measure(at::ScalarType type, const Shape& shape) {
  const auto draw = [&](int64_t rows) {
    return at::randn({shape.batch, 12, rows, 64}, at::kDouble).to(type);
  };
  const auto q = draw(shape.queries), k = draw(shape.keys), v = draw(shape.keys);
  int64_t lost = 0;
  const auto plain = [&] { at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, shape.causal); };
  const auto zero = at::zeros({1, 1, 1, 1}, type);
  const auto masked = [&] {
    const auto [output, sums] =
        at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, shape.causal, zero);
    lost += type == at::kDouble ? odd_numbers<double>(sums) : odd_numbers<float>(sums);
  };
  const double once = std::max(1.0, std::min(time_of(plain), time_of(plain)));
  const int pairs = std::clamp(static_cast<int>(5e5 / once), 6, 3000);
  std::vector<double> times, ratios;
  for (int n = 0; n < pairs; ++n) {
    const bool first = n % 2 == 0;
    const double a = first ? time_of(plain) : time_of(masked), b = first ? time_of(masked) : time_of(plain);
    times.push_back(first ? a : b);
    ratios.push_back(first ? b / a : a / b);
  }
  fmt::print("{:8} B {} L {:4} S {:4}{:8} {:9.1f} us {:+5.1f} % ({} pairs{})\n", c10::toString(type),
             shape.batch, shape.queries, shape.keys, shape.causal ? " causal" : "", bench::median_of(times),
             100 * (bench::median_of(ratios) - 1), pairs, lost > 0 ? ", rows lost" : "");
}

}  // namespace

int main() {
  at::set_num_threads(1);
  const c10::InferenceMode inference;
  for (const auto type : {at::kDouble, at::kHalf}) {
    for (const Shape& shape :
         {Shape{1, 1, 1, false}, Shape{8, 1, 1, false}, Shape{1, 16, 16, false}, Shape{8, 16, 16, false},
          Shape{1, 256, 256, false}, Shape{1, 256, 256, true}, Shape{8, 256, 256, false},
          Shape{1, 1024, 1024, false}, Shape{1, 1024, 1024, true}, Shape{1, 1, 8192, false}})
      measure(type, shape);
  }
}
