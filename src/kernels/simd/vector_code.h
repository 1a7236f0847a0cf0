#pragma once

// The vector code of the native kernel: one table of plain functions per room, filled in once per instruction set by
// native_cpu/simd_<set>.cpp and chosen at run time. A unit that is compiled for a wide set includes nothing with inline code of other
// headers, which a program on another CPU might then run.

#include "kernels/simd/matrix.h"

namespace attentive::kernels::cpu {

// A member of such a table that stands for several types of arguments: an overloaded set of pointers.
template <class Function>
struct Pointer;
template <class Result, class... Arguments>
struct Pointer<Result(Arguments...)> {
  Result (*function)(Arguments...);
  ATTENTIVE_ALWAYS_INLINE Result operator()(Arguments... arguments) const { return function(arguments...); }
};
template <class... Functions>
struct Overloaded : Pointer<Functions>... {
  using Pointer<Functions>::operator()...;
};

struct ElementwiseFunctions;  // simd/elementwise.h
struct ProductFunctions;      // gemm/products.h
struct RowFunctions;          // attention/rows.h

struct VectorCode {
  const char* name;
  int width;  // floats of a vector
  const ElementwiseFunctions* elementwise;
  const ProductFunctions* products;
  const RowFunctions* rows;
};

// The code that selection.h chose.
const VectorCode& vector_code();

// That of each set; null where the compiler or the platform has no such instructions.
namespace avx512_bf16 {
const VectorCode* code();
}
namespace avx512 {
const VectorCode* code();
}
namespace avx2 {
const VectorCode* code();
}
namespace neon_bf16 {
const VectorCode* code();
}
namespace neon {
const VectorCode* code();
}
namespace portable {
const VectorCode* code();
}

}  // namespace attentive::kernels::cpu
