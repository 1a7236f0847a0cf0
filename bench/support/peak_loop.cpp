#include "support/peak_loop.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include "support/timer.h"

namespace bench {

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

}  // namespace bench
