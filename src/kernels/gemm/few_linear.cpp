#include <algorithm>
#include <type_traits>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "core/autocast_modes.h"
#include "core/memory.h"
#include "kernels/gemm/linear.h"
#include "kernels/gemm/operands.h"
#include "kernels/gemm/scratch.h"
#include "kernels/simd/elementwise.h"
#include "kernels/simd/selection.h"
#include "kernels/simd/vector_code.h"

namespace attentive::kernels::cpu {
namespace {

// From kRowsOfTile rows on, transposing a weight that fits in a core's caches (256 KiB) for a tile product
// pays off.
constexpr int64_t kWeightsOfTile = int64_t{1} << 16, kRowsOfTile = 5;
constexpr int64_t kWeightsOfThread = int64_t{1} << 16;  // the least work for which waking a thread pays off
constexpr int64_t kBlockOutputs =
    16;  // outputs that stay together; a tile of the matrix unit has as many rows

enum class Form {
  Rows,        ///< x in float32; numbers of the weight are widened
  Pairs,       ///< x and the weight in bfloat16, as they are
  Across,      ///< x in float32, transposed
  MatrixUnit,  ///< x in bfloat16, transposed
  Packed,      ///< x in float32; the weight is transposed by the call
};

// From these numbers of rows on, the matrix unit and a transposed x pay off.
constexpr int64_t kRowsOfUnit = 2, kRowsAcross = 9;

// Up to how many rows a product is computed here. With more than 16, LibTorch's own products of half types
// are as fast, where it has them.
int64_t most_rows(at::ScalarType type) {
  const bool has_product = (type == at::kHalf && library_has_gemm_f16()) ||
                           (type == at::kBFloat16 && selection().bf16 == Bf16Product::Pairs);
  return has_product ? 16 : 32;
}

template <class T>
Form form_of(int64_t rows, int64_t weights) {
  if constexpr (kIsBf16<T>) {
    if (selection().bf16 == Bf16Product::MatrixUnit && rows >= kRowsOfUnit) return Form::MatrixUnit;
    const Pointer<void(const Matrix<const bf16_t>&, const Matrix<const bf16_t>&, const Matrix<float>&)>&
        pairs = products().multiply_few_rows;
    // On Intel's cores, an instruction for pairs takes as long as several for float32: it pays off for few
    // rows, whose products it computes without widening the weight.
    if (pairs.function != nullptr && (has_gemm_bf16() || rows < kRowsAcross)) return Form::Pairs;
  }
  if (std::is_same_v<T, float> && rows >= kRowsOfTile && weights <= kWeightsOfTile) return Form::Packed;
  return rows < kRowsAcross ? Form::Rows : Form::Across;
}

// The rows of x, in the form that the product takes. Threads share them.
template <class T>
class Operand {
 public:
  Operand(const Matrix<const T>& x, int64_t weights) : rows_(x), form_(form_of<T>(x.rows, weights)) {
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    if (form_ == Form::MatrixUnit) {
      if constexpr (kIsBf16<T>) {
        pairs_ = {scratch.take<bf16_t>(inner<bf16_t>(x.cols) * x.rows), inner<bf16_t>(x.cols), x.rows,
                  x.rows};
        products().pack_transposed(x, pairs_);
      }
    } else if (form_ == Form::Across) {
      const int64_t width = vector_code().width, columns = (x.rows + width - 1) / width * width;
      wide_ = scratch.matrix<float>(x.cols, columns);
      pack_transposed(x, Rhs<float>{wide_.data, x.cols, columns, columns});
    } else if constexpr (!std::is_same_v<T, float>) {
      if (form_ == Form::Rows) {
        wide_ = scratch.matrix<float>(x.rows, x.cols);
        elementwise().convert(x.data, wide_.data, x.rows * x.cols);
      }
    }
  }

  // out = x weight^T
  void multiply(const Matrix<const T>& weight, const Matrix<float>& out, Scratch& scratch) const {
    switch (form_) {
      case Form::Rows:
        if constexpr (std::is_same_v<T, float>) return products().multiply_few_rows(rows_, weight, out);
        return products().multiply_few_rows(wide_, weight, out);
      case Form::Across: {
        const auto sums = scratch.matrix<float>(weight.rows, wide_.cols);
        products().multiply_across(weight, wide_, sums);
        return products().transpose(sums.block(0, sums.rows, 0, out.rows), out);
      }
      case Form::Pairs:
        if constexpr (kIsBf16<T>) products().multiply_few_rows(rows_, weight, out);
        return;
      case Form::MatrixUnit:
        if constexpr (kIsBf16<T>) {
          const auto sums = scratch.matrix<float>(weight.rows, out.rows);
          amx_multiply_few_rows(weight, pairs_, sums);
          products().transpose(sums, out);
        }
        return;
      case Form::Packed:
        if constexpr (std::is_same_v<T, float>) {
          const Rhs<float> rhs{scratch.take<float>(weight.cols * out.cols), weight.cols, out.cols, out.cols};
          pack_transposed(weight, rhs);
          gemm(rows_, rhs, out, Sums::Begin);
        }
        return;
    }
  }

 private:
  Matrix<const T> rows_;
  Matrix<float> wide_;
  Rhs<bf16_t> pairs_;
  Form form_;
};

// A thread's buffers for sums. Scratch::of_this_thread holds the operand that all threads read.
Scratch& scratch_of_sums() {
  thread_local Scratch scratch;
  scratch.reset();
  return scratch;
}

// Calls work(first, count) for the outputs in [begin, end), at most kMostOutputs at a time.
template <class Work>
void for_each_chunk(int64_t begin, int64_t end, const Work& work) {
  for (int64_t first = begin; first < end; first += kMostOutputs)
    work(first, std::min(kMostOutputs, end - first));
}

// The blocks of outputs that take a thread long enough.
int64_t grain(int64_t features, int64_t layers = 1) {
  return std::max<int64_t>(kWeightsOfThread / (kBlockOutputs * features * layers), 1);
}

int64_t blocks(int64_t outputs) {
  return (outputs + kBlockOutputs - 1) / kBlockOutputs;
}

template <class T>
void multiply(const Matrix<const T>& x, at::ArrayRef<LayerNumbers<T>> layers, RowFunction function) {
  int64_t weights = 0, all = 0;
  for (const auto& layer : layers) {
    weights += layer.outputs() * x.cols;
    all += blocks(layer.outputs());
  }
  const Operand<T> operand(x, weights);
  at::parallel_for(0, all, grain(x.cols), [&](int64_t begin, int64_t end) {
    for (const auto& layer : layers) {  // whose blocks follow those of the layers before it
      const int64_t count = blocks(layer.outputs());
      const int64_t from = std::max<int64_t>(begin, 0) * kBlockOutputs,
                    to = std::min(std::min(end, count) * kBlockOutputs, layer.outputs());
      for_each_chunk(from, to, [&](int64_t first, int64_t outputs) {
        Scratch& scratch = scratch_of_sums();
        const auto sums = layer.sums(first, outputs, scratch);
        operand.multiply(layer.weight.part(first, outputs), sums, scratch);
        layer.finish(first, sums, function);
      });
      begin -= count;
      end -= count;
    }
    gemm_done();
  });
}

template <class T>
void multiply_gated(const Matrix<const T>& x, const LayerNumbers<T>& gate, const LayerNumbers<T>& up,
                    RowFunction function) {
  const Operand<T> operand(x, 2 * gate.outputs() * x.cols);
  at::parallel_for(0, blocks(gate.outputs()), grain(x.cols, 2), [&](int64_t begin, int64_t end) {
    const int64_t to = std::min(end * kBlockOutputs, gate.outputs());
    for_each_chunk(begin * kBlockOutputs, to, [&](int64_t first, int64_t outputs) {
      Scratch& scratch = scratch_of_sums();
      const auto gates = gate.sums(first, outputs, scratch), ups = scratch.matrix<float>(x.rows, outputs);
      operand.multiply(gate.weight.part(first, outputs), gates, scratch);
      operand.multiply(up.weight.part(first, outputs), ups, scratch);
      gate.finish_gated(first, gates, up, ups, function);
    });
    gemm_done();
  });
}

// Whether the call is one of few rows.
bool takes(const at::Tensor& x, at::ArrayRef<LinearLayer> layers) {
  return may_multiply(x, layers) && x.numel() <= most_rows(x.scalar_type()) * x.size(-1);
}

}  // namespace

at::Tensor few_linear(const at::Tensor& x, const LinearLayer& layer, RowFunction function) {
  if (!takes(x, layer)) return {};
  auto result = empty_result(x, layer);
  for_numbers(x.scalar_type(), [&](auto number) {
    using T = decltype(number);
    multiply<T>(rows_of<T>(x), LayerNumbers<T>(layer, result), function);
  });
  return result;
}

std::vector<at::Tensor> few_linears(const at::Tensor& x, at::ArrayRef<LinearLayer> layers) {
  if (!takes(x, layers)) return {};
  std::vector<at::Tensor> results;
  for (const auto& layer : layers) results.push_back(empty_result(x, layer));
  for_numbers(x.scalar_type(), [&](auto number) {
    using T = decltype(number);
    std::vector<LayerNumbers<T>> all;
    for (size_t i = 0; i < layers.size(); ++i) all.emplace_back(layers[i], results[i]);
    multiply<T>(rows_of<T>(x), all, nullptr);
  });
  return results;
}

at::Tensor few_gated_linear(const at::Tensor& x, const LinearLayer& gate, const LinearLayer& up,
                            RowFunction function) {
  const LinearLayer layers[] = {gate, up};
  if (!takes(x, layers) || gate.weight.size(0) != up.weight.size(0)) return {};
  auto result = empty_result(x, gate);
  for_numbers(x.scalar_type(), [&](auto number) {
    using T = decltype(number);
    multiply_gated<T>(rows_of<T>(x), LayerNumbers<T>(gate, result), LayerNumbers<T>(up, result), function);
  });
  return result;
}

bool may_multiply(const at::Tensor& x, at::ArrayRef<LinearLayer> layers) {
  const auto type = x.scalar_type();
  if (at::GradMode::is_enabled() || x.dim() == 0 || x.numel() == 0) return false;
  if (type != at::kFloat && type != at::kHalf && type != at::kBFloat16) return false;
  if (!is_contiguous_cpu(x, type) || at::autocast::is_autocast_enabled(at::kCPU)) return false;
  const int64_t features = x.size(-1);
  return std::all_of(layers.begin(), layers.end(), [&](const LinearLayer& layer) {
    const auto &weight = layer.weight, &bias = layer.bias;
    if (weight.dim() != 2 || weight.size(1) != features || weight.size(0) == 0) return false;
    if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0))) return false;
    return is_contiguous_cpu(weight, type) && (!bias.defined() || is_contiguous_cpu(bias, type));
  });
}

at::Tensor empty_result(const at::Tensor& x, const LinearLayer& layer) {
  at::DimVector sizes(x.sizes());
  sizes.back() = layer.weight.size(0);
  return advise_huge_pages(at::empty(sizes, x.options()));
}

}  // namespace attentive::kernels::cpu
