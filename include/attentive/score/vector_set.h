#pragma once

#include <cstddef>

// Shared by every reading of a score or mask function: over vectors, over tensors and over tiles.

/// The functions of one number that a score function may call, besides `abs` and `floor`, which an index
/// keeps an index.
#define ATTENTIVE_SCORE_FUNCTIONS(FUNCTION) \
  FUNCTION(exp)                             \
  FUNCTION(log)                             \
  FUNCTION(tanh)                            \
  FUNCTION(sqrt)                            \
  FUNCTION(rsqrt)                           \
  FUNCTION(sigmoid)                         \
  FUNCTION(softplus)                        \
  FUNCTION(sin)                             \
  FUNCTION(cos)

#define ATTENTIVE_COMPARISONS(COMPARE) COMPARE(<) COMPARE(<=) COMPARE(>) COMPARE(>=) COMPARE(==) COMPARE(!=)

namespace attentive {

namespace detail {

/// The instruction sets for which a function of pairs is compiled. Those that the platform lacks have no
/// code.
enum class VectorSet { Portable, Avx2, Avx512, Neon };
inline constexpr size_t kVectorSets = 4;

}  // namespace detail

namespace kernels::cpu {

constexpr float kLog2e = 1.44269504088896340736f;

}  // namespace kernels::cpu

}  // namespace attentive
