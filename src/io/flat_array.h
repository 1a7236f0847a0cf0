#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

#include "io/refusal.h"

namespace attentive {

/// How much memory the description of a file may take while it is read.
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

/// A growing array of plain values, of which each counts against a budget from when it is added until it is
/// removed. Unlike a vector, a large one grows without lying in memory twice.
template <class T>
class FlatArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  explicit FlatArray(MemoryBudget& budget) : budget_(budget) {}
  ~FlatArray() {
    budget_.release(size_ * sizeof(T));
    std::free(data_);
  }
  FlatArray(const FlatArray&) = delete;
  FlatArray& operator=(const FlatArray&) = delete;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  T& back() { return data_[size_ - 1]; }

  void push_back(T value) { *extend(1) = value; }

  /// Adds `count` values, which may lie in this very array.
  void append(const T* values, size_t count) {
    const bool inside = values >= data_ && values < data_ + size_;
    const auto from = inside ? static_cast<size_t>(values - data_) : 0;
    auto* to = extend(count);
    if (count > 0) std::memcpy(to, inside ? data_ + from : values, count * sizeof(T));
  }

  void shrink(size_t size) {
    budget_.release((size_ - size) * sizeof(T));
    size_ = size;
  }

 private:
  T* extend(size_t count) {
    budget_.charge(count * sizeof(T));
    if (count > capacity_ - size_) {
      const auto wanted = std::max({size_ + count, 2 * capacity_, size_t{16}});
      auto* moved = static_cast<T*>(std::realloc(data_, wanted * sizeof(T)));
      if (moved == nullptr) throw std::bad_alloc();
      data_ = moved;
      capacity_ = wanted;
    }
    size_ += count;
    return data_ + size_ - count;
  }

  MemoryBudget& budget_;
  T* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace attentive
