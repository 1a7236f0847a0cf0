#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace attentive {

/// The bytes of a file that is open for reading, or of memory. Every member throws Refusal.
class ByteSource {
 public:
  /// A regular file. What is read is what the file holds at that moment; one that became shorter is refused.
  explicit ByteSource(const std::filesystem::path& path);
  /// Memory, which must outlive this.
  ByteSource(const void* data, size_t size) : data_(static_cast<const char*>(data)), size_(size) {}
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  uint64_t size() const { return size_; }
  /// Of the file, or -1.
  int descriptor() const { return descriptor_; }

  /// Copies bytes, all of which must lie inside.
  void read(uint64_t offset, void* to, size_t size) const;

  /// The same, and the CRC-32 of the bytes, which are summed up while they are in the cache.
  uint32_t read_and_sum(uint64_t offset, void* to, size_t size) const;

 private:
  const char* data_ = nullptr;
  uint64_t size_ = 0;
  int descriptor_ = -1;
};

}  // namespace attentive
