#include <algorithm>

#include <ATen/Parallel.h>

#include "kernels/gemm/linear.h"
#include "kernels/gemm/operands.h"
#include "kernels/gemm/scratch.h"
#include "kernels/simd/vector_code.h"

namespace attentive::kernels::cpu {
namespace {

constexpr int64_t kPanelOutputs = 64;  // outputs; a register block is as wide
// A thread multiplies at most kMostLinearRows rows with a panel, whose float32 sums then stay in its caches,
// and at least kLeastRows, for which transposing the panel takes little of the time.
constexpr int64_t kMostLinearRows = 512, kLeastRows = 96;
constexpr int64_t kPanelsOfThread = 4;  // so many that the last ones leave no thread idle for long

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The rows that are multiplied with a panel at a time.
int64_t rows_of_panel(int64_t rows, int64_t panels) {
  const int64_t blocks =
      std::max(ceil_div(rows, kMostLinearRows), ceil_div(kPanelsOfThread * at::get_num_threads(), panels));
  return std::max(ceil_div(rows, blocks), kLeastRows);
}

// Calls work(first row, rows, first output, outputs) on all threads, for every block of the result.
template <class Work>
void for_each_panel(int64_t rows, int64_t outputs, const Work& work) {
  const int64_t panels = ceil_div(outputs, kPanelOutputs), height = rows_of_panel(rows, panels),
                blocks = ceil_div(rows, height);
  at::parallel_for(0, panels * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item / panels * height, first = item % panels * kPanelOutputs;
      work(row, std::min(height, rows - row), first, std::min(kPanelOutputs, outputs - first));
    }
  });
}

// out = x weight^T
template <class T>
void multiply_panel(const Matrix<const T>& x, const Matrix<const T>& weight, const Matrix<float>& out,
                    Scratch& scratch) {
  const Rhs<T> panel{scratch.take<T>(x.cols * kPanelOutputs), x.cols, weight.rows, kPanelOutputs};
  products().pack_transposed(weight, panel);
  gemm(x, panel, out, Sums::Begin);
}

Scratch& emptied_scratch() {
  Scratch& scratch = Scratch::of_this_thread();
  scratch.reset();
  return scratch;
}

template <class T>
void multiply_panels(const Matrix<const T>& x, const LayerNumbers<T>& layer, RowFunction function) {
  for_each_panel(x.rows, layer.outputs(), [&](int64_t row, int64_t rows, int64_t first, int64_t outputs) {
    Scratch& scratch = emptied_scratch();
    const auto part = layer.part(row, rows);
    const auto sums = part.sums(first, outputs, scratch);
    multiply_panel(x.part(row, rows), layer.weight.part(first, outputs), sums, scratch);
    part.finish(first, sums, function);
  });
}

template <class T>
void multiply_gated_panels(const Matrix<const T>& x, const LayerNumbers<T>& gate, const LayerNumbers<T>& up,
                           RowFunction function) {
  for_each_panel(x.rows, gate.outputs(), [&](int64_t row, int64_t rows, int64_t first, int64_t outputs) {
    Scratch& scratch = emptied_scratch();
    const auto part = gate.part(row, rows);
    const auto gates = part.sums(first, outputs, scratch), ups = scratch.matrix<float>(rows, outputs);
    const auto lhs = x.part(row, rows);
    multiply_panel(lhs, gate.weight.part(first, outputs), gates, scratch);
    multiply_panel(lhs, up.weight.part(first, outputs), ups, scratch);
    part.finish_gated(first, gates, up, ups, function);
  });
}

// Whether products here are faster than LibTorch's: with AVX-512 on AMD, whose processors alone multiply
// pairs of bfloat16 with it.
bool are_faster() {
  return selection().bf16 == Bf16Product::Pairs && vector_code().width == 16;
}

bool takes_many(const at::Tensor& x, at::ArrayRef<LinearLayer> layers) {
  if (!are_faster() || !may_multiply(x, layers)) return false;
  return x.scalar_type() == at::kFloat || (x.scalar_type() == at::kBFloat16 && x.size(-1) % 2 == 0);
}

// Calls work(T{}) for the type of the numbers of x, of those that `takes_many` allows.
template <class Work>
void for_numbers_of(const at::Tensor& x, const Work& work) {
  if (x.scalar_type() == at::kFloat) return work(float{});
  work(bf16_t{});
}

}  // namespace

at::Tensor many_linear(const at::Tensor& x, const LinearLayer& layer, RowFunction function) {
  if (!takes_many(x, layer)) return {};
  auto result = empty_result(x, layer);
  for_numbers_of(x, [&](auto number) {
    using T = decltype(number);
    multiply_panels<T>(rows_of<T>(x), LayerNumbers<T>(layer, result), function);
  });
  return result;
}

at::Tensor many_gated_linear(const at::Tensor& x, const LinearLayer& gate, const LinearLayer& up,
                             RowFunction function) {
  const LinearLayer layers[] = {gate, up};
  if (!takes_many(x, layers) || gate.weight.size(0) != up.weight.size(0)) return {};
  auto result = empty_result(x, gate);
  for_numbers_of(x, [&](auto number) {
    using T = decltype(number);
    multiply_gated_panels<T>(rows_of<T>(x), LayerNumbers<T>(gate, result), LayerNumbers<T>(up, result),
                             function);
  });
  return result;
}

}  // namespace attentive::kernels::cpu
