// The vector code of the native kernel, for vectors of kWidth floats. Included by one source file per
// instruction set, which defines ATTENTIVE_SIMD_NAMESPACE and ATTENTIVE_SIMD_WIDTH. It uses the compilers'
// vector extensions (GCC and Clang), so that one source serves every width.

#include <cstring>

#if defined(__AVX512F__) && ATTENTIVE_SIMD_WIDTH == 16
#define ATTENTIVE_SIMD_IS_AVX512 1
#else
#define ATTENTIVE_SIMD_IS_AVX512 0
#endif
#if defined(__AVX2__) && ATTENTIVE_SIMD_WIDTH == 8
#define ATTENTIVE_SIMD_IS_AVX2 1
#else
#define ATTENTIVE_SIMD_IS_AVX2 0
#endif
#if ATTENTIVE_SIMD_IS_AVX512 || ATTENTIVE_SIMD_IS_AVX2
#include <immintrin.h>
#endif

#include "kernels/philox_constants.h"
#include "kernels/simd/simd.h"

namespace attentive::kernels::cpu {
namespace ATTENTIVE_SIMD_NAMESPACE {
namespace {

#include "kernels/simd/vector.h"
// These build on it,
#include "kernels/gemm/register_blocks.h"
#include "kernels/simd/sums.h"
// and the others on all three.
#include "kernels/attention/dropout_bits.h"
#include "kernels/attention/few_queries_vectors.h"
#include "kernels/attention/softmax_rows.h"
#include "kernels/gemm/few_rows.h"
#include "kernels/simd/gelu.h"
#include "kernels/simd/packing.h"

constexpr Simd make_table(const char* name) {
  return {.name = name,
          .width = kWidth,
          .softmax_rows = softmax_rows,
          .gradient_row = gradient_row,
          .transpose = transpose,
          .transpose_to_bf16 = transpose_to_bf16,
          .transpose_from_bf16 = transpose_from_bf16,
          .to_bf16 = to_bf16,
          .from_bf16 = from_bf16,
          .pack_pairs = pack_pairs,
          .pack_pairs_transposed = pack_pairs_transposed,
          .copy_rows = copy_rows,
          .copy_rows_from_bf16 = copy_rows_from_bf16,
          .scale = scale,
          .store_scaled = store_scaled,
          .store_scaled16 = store_scaled16,
          .add = add,
          .dot = dot,
          .dot16 = dot16,
          .all_finite = all_finite,
          .all_finite16 = all_finite16,
          .dropout_bits = dropout_bits,
          .few_scores = few_scores,
          .few_outputs = few_outputs,
          .few_products = few_products,
          .gelu = gelu,
          .gelu_gradient = gelu_gradient,
          .gemm = gemm,
          .gemm_causal = gemm_causal,
          .gemm16 = gemm16};
}

}  // namespace
}  // namespace ATTENTIVE_SIMD_NAMESPACE
}  // namespace attentive::kernels::cpu
