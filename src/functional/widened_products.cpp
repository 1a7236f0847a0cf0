#include "functional/widened_products.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

namespace attentive {
namespace {

// Bounds the memory of what is widened. Blocks that fit the caches are slower: threads wait at the end of each.
constexpr int64_t kRows = 8192;

// Rows of a bfloat16 matrix, widened into the same memory block after block.
class WidenedRows {
 public:
  explicit WidenedRows(const at::Tensor& matrix)
      : matrix_(matrix),
        buffer_(at::empty({std::min(matrix.size(0), kRows), matrix.size(1)},
                          matrix.options().dtype(at::kFloat))) {}

  at::Tensor at(int64_t row, int64_t rows) {
    return buffer_.narrow(0, 0, rows).copy_(matrix_.narrow(0, row, rows));
  }

 private:
  at::Tensor matrix_, buffer_;
};

template <class Work>
void for_each_block(int64_t rows, const Work& work) {
  for (int64_t row = 0; row < rows; row += kRows) work(row, std::min(rows - row, kRows));
}

}  // namespace

at::Tensor widened_product(const at::Tensor& x, const at::Tensor& right, const at::Tensor& bias) {
  const at::NoGradGuard no_grad;
  auto sizes = x.sizes().vec();
  sizes.back() = right.size(1);
  auto result = at::empty(sizes, x.options());
  const auto left = x.reshape({-1, x.size(-1)}), out = result.view({-1, right.size(1)});
  const auto wide_bias = bias.defined() ? bias.to(at::kFloat) : bias;
  WidenedRows widened(left);
  const auto buffer = at::empty({std::min(left.size(0), kRows), right.size(1)}, right.options());
  for_each_block(left.size(0), [&](int64_t row, int64_t rows) {
    auto product = buffer.narrow(0, 0, rows);
    if (bias.defined()) {
      at::addmm_out(product, wide_bias, widened.at(row, rows), right);
    } else {
      at::mm_out(product, widened.at(row, rows), right);
    }
    out.narrow(0, row, rows).copy_(product);
  });
  return result;
}

at::Tensor widened_sum_of_rows(const at::Tensor& a, const at::Tensor& b) {
  const at::NoGradGuard no_grad;
  auto sum = at::zeros({a.size(1), b.size(1)}, a.options().dtype(at::kFloat));
  WidenedRows left(a), right(b);
  for_each_block(a.size(0),
                 [&](int64_t row, int64_t rows) { sum.addmm_(left.at(row, rows).t(), right.at(row, rows)); });
  return sum.to(a.scalar_type());
}

}  // namespace attentive
