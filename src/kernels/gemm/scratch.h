#pragma once

// Memory of a thread that outlives the call, so that large buffers are not mapped and faulted in every time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace attentive::kernels::cpu {

// Hands out aligned pieces of one thread's buffers until the next `reset`. What it hands out is not
// initialised.
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

 private:
  static constexpr size_t kAlignment = 64;
  struct Buffer {
    std::unique_ptr<std::byte[]> data;
    size_t size = 0;
  };
  // One buffer per place in the order of `take` calls, so that a call with other sizes rarely allocates
  // again.
  std::vector<Buffer> buffers_;
  size_t used_ = 0;
};

}  // namespace attentive::kernels::cpu
