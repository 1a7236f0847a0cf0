#pragma once

// All vector code of the native kernel, as tables. One source per instruction set, which src/CMakeLists.txt
// writes, includes this header. It defines the macros that score/vectors/vector.h explains, and
// ATTENTIVE_SIMD_SET: the compiler's macro for the set, which is 1 if the compiler targets it.

#include "kernels/simd/vector_code.h"

#ifndef ATTENTIVE_SIMD_SET
#define ATTENTIVE_SIMD_SET 1
#endif

#if ATTENTIVE_SIMD_SET
#include "kernels/attention/few_queries_vectors.h"
#include "kernels/attention/gradient_row.h"
#include "kernels/attention/softmax_row.h"
#include "kernels/attention/stored_weights_row.h"
#include "kernels/delta_rule/delta_vectors.h"
#include "kernels/gemm/few_rows.h"
#include "kernels/gemm/packing.h"
#include "kernels/gemm/products.h"
#include "kernels/gemm/register_blocks.h"
#include "kernels/simd/dropout_bits.h"
#include "kernels/simd/elementwise.h"
#include "kernels/simd/rows.h"

ATTENTIVE_SIMD_BEGIN

constexpr ElementwiseFunctions kElementwise = {
    .convert = {{convert}, {convert}, {convert}, {convert}, {convert}},
    .store_scaled = {{store_scaled}, {store_scaled}, {store_scaled}},
    .add = add,
    .multiply_by = multiply_by,
    .rotate_halves = rotate_halves,
    .dot = {{dot}, {dot}, {dot}},
    .all_finite = {{all_finite}, {all_finite}, {all_finite}},
    .gelu = gelu,
    .gelu_gradient = gelu_gradient,
    .silu = silu,
    .scale_survivors = scale_survivors,
    .dropout_bits = dropout_bits};

constexpr ProductFunctions kProducts = {
    .multiply = {{multiply}, {multiply_pairs}},
    .add_transposed = add_transposed,
    .transpose = {{transpose}, {transpose}, {transpose}, {transpose}, {transpose}, {transpose}},
    .pack_transposed = {{pack_transposed}, {pack_transposed}, {pack_transposed}, {pack_transposed}},
    .pack_rows = {{pack_rows}, {pack_rows}, {pack_rows}, {pack_rows}},
    .multiply_few_rows = {{multiply_few_rows},
                          {multiply_few_rows},
                          {multiply_few_rows},
                          {multiply_few_pairs}},
    .multiply_across = {{multiply_across}, {multiply_across}, {multiply_across}}};

constexpr RowFunctions kRowFunctions = {.cap = cap,
                                        .plain_rows = plain_rows,
                                        .softmax_rows = softmax_rows,
                                        .gradient_row = gradient_row,
                                        .stored_weights_row = stored_weights_row,
                                        .logit_sums = logit_sums,
                                        .add_logits = add_logits,
                                        .few_scores = {{few_scores}, {few_scores}, {few_scores}},
                                        .few_outputs = {{few_outputs}, {few_outputs}, {few_outputs}}};

constexpr DeltaFunctions kDeltaFunctions = {.decays = decays,
                                            .decays_of_pairs = decays_of_pairs,
                                            .take_lower = take_lower,
                                            .add_products = add_products,
                                            .norm_gradient = norm_gradient,
                                            .solve = solve_block<false>,
                                            .solve_transposed = solve_block<true>,
                                            .gate_gradients = gate_gradients,
                                            .channel_block = channel_block,
                                            .channel_block_gradients = channel_block_gradients,
                                            .look_up = look_up,
                                            .update = update};

ATTENTIVE_SIMD_END

#endif

#if ATTENTIVE_SIMD_IS_AVX512
#define ATTENTIVE_SCORE_SET Avx512
#elif ATTENTIVE_SIMD_IS_AVX2
#define ATTENTIVE_SCORE_SET Avx2
#elif ATTENTIVE_SIMD_IS_NEON
#define ATTENTIVE_SCORE_SET Neon
#else
#define ATTENTIVE_SCORE_SET Portable
#endif
#define ATTENTIVE_TEXT(x) #x
#define ATTENTIVE_TEXT_OF(macro) ATTENTIVE_TEXT(macro)

namespace attentive::kernels::cpu::ATTENTIVE_SIMD_NAMESPACE {

const VectorCode* code() {
#if ATTENTIVE_SIMD_SET
  static constexpr VectorCode result = {ATTENTIVE_TEXT_OF(ATTENTIVE_SIMD_NAMESPACE),
                                        detail::VectorSet::ATTENTIVE_SCORE_SET,
                                        kWidth,
                                        &kElementwise,
                                        &kProducts,
                                        &kRowFunctions,
                                        &kDeltaFunctions};
  return &result;
#else
  return nullptr;
#endif
}

}  // namespace attentive::kernels::cpu::ATTENTIVE_SIMD_NAMESPACE
