#pragma once

// The thread block of src/kernels/native_cuda on the CPU: the threads of a phase run in turn, and every
// access to a shared number is checked. A number that one thread writes and another one reads or writes in
// the same phase is a race.

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

namespace attentive::test {

class EmulatedBlock {
 public:
  explicit EmulatedBlock(int size, bool backwards = false)
      : size_(size), backwards_(backwards), shared_(static_cast<size_t>(size)) {}

  template <class T, int N>
  class PerThread {
   public:
    std::array<T, N>& operator()(int thread) {
      if (numbers_.size() <= static_cast<size_t>(thread)) numbers_.resize(static_cast<size_t>(thread) + 1);
      return numbers_[static_cast<size_t>(thread)];
    }

   private:
    std::vector<std::array<T, N>> numbers_;
  };

  int size() const { return size_; }

  /// The order of threads inside a phase must not matter; tests run both directions.
  template <class F>
  void phase(const F& f) {
    ++phase_;
    for (int n = 0; n < size_; ++n) f(backwards_ ? size_ - 1 - n : n);
  }

  float read(int thread, int offset) {
    Cell& cell = shared_.at(static_cast<size_t>(offset));
    if (cell.written == phase_ && cell.writer != thread) race(offset, cell.writer, thread);
    if (cell.read == phase_ && cell.reader != thread) {
      cell.reader = kSeveral;
    } else {
      cell.reader = thread;
    }
    cell.read = phase_;
    return cell.value;
  }

  void write(int thread, int offset, float value) {
    Cell& cell = shared_.at(static_cast<size_t>(offset));
    if (cell.written == phase_ && cell.writer != thread) race(offset, cell.writer, thread);
    if (cell.read == phase_ && cell.reader != thread) race(offset, cell.reader, thread);
    cell.written = phase_;
    cell.writer = thread;
    cell.value = value;
  }

 private:
  static constexpr int kSeveral = -1;
  struct Cell {
    float value = 0.0f;
    long written = 0, read = 0;  ///< the phases of the last accesses
    int writer = 0, reader = 0;
  };

  [[noreturn]] void race(int offset, int first, int second) const {
    throw std::logic_error("race on shared number " + std::to_string(offset) + " between threads " +
                           std::to_string(first) + " and " + std::to_string(second));
  }

  int size_;
  bool backwards_;
  long phase_ = 0;
  std::vector<Cell> shared_;
};

}  // namespace attentive::test
