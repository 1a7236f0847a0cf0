#pragma once

// The vector code of the native kernel: tables of plain functions, one for each of simd/, gemm/, attention/
// and delta_rule/, which native_cpu/simd_<set>.cpp fills in for one instruction set and of which one set is
// chosen at run time. A source that is compiled for a wide set must not include headers with inline code: the
// linker could keep its copy of an inline function, which then runs on a CPU without that set.

#include "kernels/simd/matrix.h"

namespace attentive::kernels::cpu {

/// A set of function pointers, overloaded by the types of their arguments, as a member of such a table.
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

struct ElementwiseFunctions;  ///< simd/elementwise.h
struct ProductFunctions;      ///< gemm/products.h
struct RowFunctions;          ///< attention/rows.h
struct DeltaFunctions;        ///< delta_rule/functions.h

struct VectorCode {
  const char* name;
  detail::VectorSet set;  ///< that of the code of score and mask functions
  int width;              ///< floats per vector
  const ElementwiseFunctions* elementwise;
  const ProductFunctions* products;
  const RowFunctions* rows;
  const DeltaFunctions* delta;
};

enum class Bf16Product {
  Widened,     ///< operands are widened to float32, which is exact, and multiplied in float32
  Pairs,       ///< vdpbf16ps, or ARM's bfmmla
  MatrixUnit,  ///< AMX
};

struct UnitFunctions;  ///< attention/units.h

struct Selection {
  const VectorCode* code;
  Bf16Product bf16;
  /// Whether LibTorch's own products of float16 are about as fast as those of float32.
  bool library_f16 = false;
  const UnitFunctions* units =
      nullptr;  ///< the code of attention in bfloat16 on the matrix unit, if it is used
};

/// The selection of this process; null before it is used for the first time.
extern const Selection* current_selection;
/// Chooses the selection of this process (selection.h) and returns it.
const Selection& make_selection();

/// The selection that this process uses: that of this CPU and ATEN_CPU_CAPABILITY, unless a test forces
/// another. It is inline because a row of a tile asks several times.
ATTENTIVE_ALWAYS_INLINE const Selection& selection() {
  const Selection* const current = __atomic_load_n(&current_selection, __ATOMIC_ACQUIRE);
  return current ? *current : make_selection();
}

ATTENTIVE_ALWAYS_INLINE const VectorCode& vector_code() {
  return *selection().code;
}

/// CpuFeatures::prefetch_to_l2 of this CPU.
extern const bool prefetch_to_l2;

/// The code of each set, or null if the compiler or the platform lacks its instructions.
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

/// The code of attention in units on AMX, or null if the compiler has no such code; and the same in plain
/// C++, with the same bits.
const UnitFunctions* amx_units();
const UnitFunctions* portable_units();

}  // namespace attentive::kernels::cpu
