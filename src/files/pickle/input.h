#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "files/byte_source.h"

namespace attentive::pickle {

/// A range of a file's bytes that holds one or more pickles. Bytes are read into memory as they are taken,
/// and stay there.
class PickleInput {
 public:
  /// Uses the bytes [begin, end) of `source`, which must outlive this object. At most `limit` of them may be
  /// taken.
  PickleInput(const ByteSource& source, uint64_t begin, uint64_t end, uint64_t limit)
      : source_(source), begin_(begin), size_(end - begin), limit_(limit) {}

  /// Reads all of them into memory and returns their CRC-32.
  uint32_t load_all();

  /// Takes `count` bytes; the pointer is valid until the next call. Throws Refusal if there are fewer.
  const char* take(uint64_t count);
  /// Takes the bytes up to a line feed, at most `longest`, and skips the line feed.
  std::string_view take_line(uint64_t longest);

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return size_ - position_; }
  /// Bytes that were taken before.
  std::string_view text(uint64_t offset, uint64_t size) const { return {bytes_.get() + offset, size}; }

 private:
  void reserve();
  void load(uint64_t count);

  const ByteSource& source_;
  uint64_t begin_;
  uint64_t size_;
  uint64_t limit_;
  uint64_t loaded_ = 0;
  uint64_t position_ = 0;
  std::unique_ptr<char, decltype(&std::free)> bytes_{nullptr, &std::free};
};

}  // namespace attentive::pickle

namespace attentive {

/// The decimal digits, with a minus sign for negative numbers, of a two's complement integer in little-endian
/// order.
std::string decimal_of(std::string_view bytes);

/// The shortest two's complement, little-endian, of a decimal text with an optional minus sign. Empty if the
/// text is not a number or needs more than `max_bytes`.
std::string bytes_of(std::string_view decimal, size_t max_bytes);

}  // namespace attentive
