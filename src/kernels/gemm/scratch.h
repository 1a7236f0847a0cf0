#pragma once

// Memory that a thread keeps between calls, so that large buffers are not mapped and faulted in by every
// call.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/simd/matrix.h"

namespace attentive::kernels::cpu {

/// Hands out aligned, uninitialised pieces of one thread's buffers, which are valid until the next `reset`.
class Scratch {
 public:
  static Scratch& of_this_thread() {
    thread_local Scratch scratch;
    return scratch;
  }

  void reset() { used_ = 0; }

  template <class T>
  T* take(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T) + kAlignment;
    if (used_ == buffers_.size()) buffers_.emplace_back();
    Buffer& buffer = buffers_[used_++];
    if (buffer.size < bytes) {
      buffer.data.reset(new std::byte[bytes]);
      buffer.size = bytes;
    }
    const auto address = reinterpret_cast<uintptr_t>(buffer.data.get());
    return reinterpret_cast<T*>((address + kAlignment - 1) / kAlignment * kAlignment);
  }
  /// Takes a matrix whose rows are `stride` numbers apart; without a stride it is contiguous.
  template <class T>
  Matrix<T> matrix(int64_t rows, int64_t cols, int64_t stride = 0) {
    stride = stride == 0 ? cols : stride;
    return {take<T>(rows * stride), rows, cols, stride};
  }

 private:
  static constexpr size_t kAlignment = 64;
  struct Buffer {
    std::unique_ptr<std::byte[]> data;
    size_t size = 0;
  };
  /// There is one buffer per `take` since the last `reset`, so that a call with other sizes rarely allocates
  /// again.
  std::vector<Buffer> buffers_;
  size_t used_ = 0;
};

}  // namespace attentive::kernels::cpu
