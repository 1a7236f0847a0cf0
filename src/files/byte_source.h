#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace attentive {

/// The bytes of a file that is open for reading, or of memory. Every member throws Refusal.
class ByteSource {
 public:
  /// Opens a regular file. Each read returns the file's content at that moment; a read beyond its end is
  /// refused.
  explicit ByteSource(const std::filesystem::path& path);
  /// Uses memory, which must outlive this object.
  ByteSource(const void* data, size_t size) : data_(static_cast<const char*>(data)), size_(size) {}
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  uint64_t size() const { return size_; }
  /// The descriptor of the open file, or -1 for memory.
  int descriptor() const { return descriptor_; }

  /// Copies bytes; [offset, offset + size) must lie inside the source.
  void read(uint64_t offset, void* to, size_t size) const;

  /// Copies bytes as `read` does and returns their CRC-32, which is computed while they are in the cache.
  uint32_t read_and_sum(uint64_t offset, void* to, size_t size) const;

 private:
  const char* data_ = nullptr;
  uint64_t size_ = 0;
  int descriptor_ = -1;
};

}  // namespace attentive
