#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/refusal.h"

namespace attentive {

/// Counts the memory that the description of a file takes while it is read, against a limit.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit) : limit_(limit) {}

  void charge(uint64_t bytes) {
    if (bytes > limit_ - used_) {
      refuse("its description takes more than {} bytes of memory (max_pickle_bytes)", limit_);
    }
    used_ += bytes;
  }
  void release(uint64_t bytes) { used_ -= bytes; }

 private:
  uint64_t limit_;
  uint64_t used_ = 0;
};

/// Reserves a part of the budget during its lifetime.
class BudgetShare {
 public:
  BudgetShare(MemoryBudget& budget, uint64_t bytes) : budget_(budget), bytes_(bytes) { budget.charge(bytes); }
  ~BudgetShare() { budget_.release(bytes_); }
  BudgetShare(const BudgetShare&) = delete;
  BudgetShare& operator=(const BudgetShare&) = delete;

 private:
  MemoryBudget& budget_;
  uint64_t bytes_;
};

/// A growing array of trivial values, each of which counts against a budget while it is in the array. It is
/// stored in chunks and never copied to grow: a copy would need memory for the old and the new array, which
/// nobody counts.
template <class T>
class ChunkedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  static constexpr size_t kChunk = 4096;  // values

 public:
  explicit ChunkedArray(MemoryBudget& budget) : budget_(budget) {}
  ~ChunkedArray() { budget_.release(size_ * sizeof(T)); }
  ChunkedArray(const ChunkedArray&) = delete;
  ChunkedArray& operator=(const ChunkedArray&) = delete;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return chunks_[i / kChunk][i % kChunk]; }
  const T& operator[](size_t i) const { return chunks_[i / kChunk][i % kChunk]; }
  T& back() { return (*this)[size_ - 1]; }

  void push_back(T value) {
    budget_.charge(sizeof(T));
    if (size_ == chunks_.size() * kChunk) chunks_.push_back(std::make_unique_for_overwrite<T[]>(kChunk));
    (*this)[size_++] = value;
  }

  void shrink(size_t size) {
    budget_.release((size_ - size) * sizeof(T));
    size_ = size;
    // One spare chunk, for an array that grows and shrinks around its end.
    const auto spare = size_ / kChunk + 2;
    if (chunks_.size() > spare) chunks_.resize(spare);
  }

 private:
  MemoryBudget& budget_;
  std::vector<std::unique_ptr<T[]>> chunks_;
  size_t size_ = 0;
};

}  // namespace attentive
