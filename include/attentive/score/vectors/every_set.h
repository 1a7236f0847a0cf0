#pragma once

// The vector code of scores for every instruction set of the platform, in one source: each function has the
// target attribute of its set, so that the source itself may be compiled for any processor.

#include <cstdint>
#include <cstring>

#include <attentive/score/score_callbacks.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// Headers that come once, outside of the attributes.
#include <concepts>
#include <type_traits>

#include <attentive/score/vector_set.h>

#if defined(__x86_64__)

#define ATTENTIVE_SIMD_SEVERAL
#define ATTENTIVE_SIMD_TARGETED

#define ATTENTIVE_SIMD_NAMESPACE avx512
#define ATTENTIVE_SIMD_WIDTH 16
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,prefer-vector-width=512")
#endif
#include <attentive/score/vectors/rows.h>
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#define ATTENTIVE_SIMD_NAMESPACE avx2
#define ATTENTIVE_SIMD_WIDTH 8
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#include <attentive/score/vectors/rows.h>
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#undef ATTENTIVE_SIMD_TARGETED
#undef ATTENTIVE_SIMD_SEVERAL

#elif defined(__aarch64__)

#define ATTENTIVE_SIMD_SEVERAL
#define ATTENTIVE_SIMD_NEON
#define ATTENTIVE_SIMD_NAMESPACE neon
#define ATTENTIVE_SIMD_WIDTH 4
#include <attentive/score/vectors/rows.h>
#undef ATTENTIVE_SIMD_NEON
#undef ATTENTIVE_SIMD_SEVERAL

#endif

#include <attentive/score/vectors/rows.h>  // for the portable set

namespace attentive::detail {
namespace {

/// The code of a function of pairs for each instruction set.
template <class F, bool kIsMask>
constexpr std::array<PairFunctionCode, kVectorSets> every_code() {
  std::array<PairFunctionCode, kVectorSets> code = {};
  code[static_cast<size_t>(VectorSet::Portable)] = kernels::cpu::portable::code_of<F, kIsMask>();
#if defined(__x86_64__)
  code[static_cast<size_t>(VectorSet::Avx2)] = kernels::cpu::avx2::code_of<F, kIsMask>();
  code[static_cast<size_t>(VectorSet::Avx512)] = kernels::cpu::avx512::code_of<F, kIsMask>();
#elif defined(__aarch64__)
  code[static_cast<size_t>(VectorSet::Neon)] = kernels::cpu::neon::code_of<F, kIsMask>();
#endif
  return code;
}

}  // namespace
}  // namespace attentive::detail
