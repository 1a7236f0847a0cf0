#pragma once

#include <cstddef>
#include <cstdint>

namespace attentive {

/// A private mapping of a whole file, readable and writable: what is written stays in memory.
class MappedFile {
 public:
  /// `descriptor` is an open file of `size` > 0 bytes; it may be closed afterwards. Throws Refusal.
  MappedFile(int descriptor, uint64_t size);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_;
  uint64_t size_;
};

}  // namespace attentive
