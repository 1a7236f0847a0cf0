#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "files/byte_source.h"

namespace attentive::pickle {

/// Bytes of a file that are read as pickles, one after another. They come into memory as they are taken, and
/// stay there.
class PickleInput {
 public:
  /// The bytes [begin, end) of `source`, which must outlive this; more than `limit` of them are never taken.
  PickleInput(const ByteSource& source, uint64_t begin, uint64_t end, uint64_t limit)
      : source_(source), begin_(begin), size_(end - begin), limit_(limit) {}

  /// Takes all of them into memory and returns their CRC-32.
  uint32_t load_all();

  /// The next bytes, until the next call. Throws Refusal where there are not as many.
  const char* take(uint64_t count);
  /// The bytes up to a line feed, which is passed over, at most `longest`.
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

/// The decimal digits, with a minus sign if need be, of an integer in two's complement, its lowest byte
/// first.
std::string decimal_of(std::string_view bytes);

/// The shortest such bytes of decimal digits with an optional minus sign; empty if the text is none, or if
/// it has more than `max_bytes`.
std::string bytes_of(std::string_view decimal, size_t max_bytes);

}  // namespace attentive
