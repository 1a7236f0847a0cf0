#pragma once

// The interface of a thread block to the row kernels. A kernel is a sequence of phases, each of which says
// what every thread does and ends with a barrier; within a phase no thread may read what another one writes.
// The kernels run on the GPU (DeviceBlock) and in tests on the CPU, thread by thread, where this rule is
// checked.

#include <cstdint>

#include "kernels/host_device.h"

#if defined(__CUDA_ARCH__)
#define ATTENTIVE_UNROLL _Pragma("unroll")
#else
#define ATTENTIVE_UNROLL  // the host's compiler may not know the pragma and does not need it
#endif

namespace attentive::kernels::native_cuda {

// A Block has these members:
//   int size() const                      number of threads, a power of two
//   template <class T, int N> PerThread   N numbers of every thread that persist between phases: x(thread)[n]
//   void phase(f)                         calls f(thread) for every thread, then waits at a barrier
//   float read(thread, at), write(thread, at, x)   access the shared numbers, one per thread

struct Larger {
  /// A NaN is ignored here; it reaches the result through the sum.
  ATTENTIVE_HOST_DEVICE float operator()(float a, float b) const { return b > a ? b : a; }
};
struct Sum {
  ATTENTIVE_HOST_DEVICE float operator()(float a, float b) const { return a + b; }
};

/// Reduces the numbers of all threads and gives every thread the result. The order of a tree of halves never
/// changes.
template <class Block, class Scalars, class Operation>
ATTENTIVE_HOST_DEVICE void reduce(Block& block, Scalars& numbers, Operation operation) {
  block.phase([&](int t) { block.write(t, t, numbers(t)[0]); });
  for (int half = block.size() / 2; half > 0; half /= 2) {
    block.phase([&](int t) {
      if (t < half) block.write(t, t, operation(block.read(t, t), block.read(t, t + half)));
    });
  }
  block.phase([&](int t) { numbers(t)[0] = block.read(t, 0); });
}

}  // namespace attentive::kernels::native_cuda
