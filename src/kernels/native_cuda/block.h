#pragma once

// A thread block, as the row kernels see it. They say what every thread does in a phase; a phase ends with a
// barrier, and no thread may read in it what another one writes in it. The same source runs on the GPU
// (DeviceBlock) and, thread by thread and with that rule checked, on the CPU in the tests.

#include <cstdint>

#include "kernels/host_device.h"

#if defined(__CUDA_ARCH__)
#define ATTENTIVE_UNROLL _Pragma("unroll")
#else
#define ATTENTIVE_UNROLL  // the host's compiler may not know it, and need not
#endif

namespace attentive::kernels::native_cuda {

// What a Block offers:
//   int size() const                      number of threads, a power of two
//   template <class T, int N> PerThread   N numbers of every thread that live on between phases: x(thread)[n]
//   void phase(f)                         f(thread) for every thread, then a barrier
//   float read(thread, at), write(thread, at, x)   shared numbers, one per thread

struct Larger {
  // A NaN does not count; it reaches the result through the sum.
  ATTENTIVE_HOST_DEVICE float operator()(float a, float b) const { return b > a ? b : a; }
};
struct Sum {
  ATTENTIVE_HOST_DEVICE float operator()(float a, float b) const { return a + b; }
};

// Every thread's number becomes the result of all: by halves, so always in the same order.
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
