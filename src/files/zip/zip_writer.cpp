#include "files/zip/zip_writer.h"

#include <algorithm>

#include <fmt/format.h>

#include "files/zip/crc32.h"
#include "files/zip/zip_format.h"

namespace attentive {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint16_t kVersionMade = 0x031E;
constexpr uint16_t kVersionOfZip64 = 45;

// Appends fields, in little-endian order.
class Fields {
 public:
  Fields& u16(uint64_t value) { return add<uint16_t>(value); }
  Fields& u32(uint64_t value) { return add<uint32_t>(value); }
  Fields& u64(uint64_t value) { return add<uint64_t>(value); }
  Fields& text(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <class T>
  Fields& add(uint64_t value) {
    const auto narrow = static_cast<T>(value);
    bytes_.append(reinterpret_cast<const char*>(&narrow), sizeof(narrow));
    return *this;
  }

  std::string bytes_;
};

bool needs64(uint64_t value) {
  return value >= zip::kIn64Wide;
}

uint64_t narrowed(uint64_t value) {
  return std::min<uint64_t>(value, zip::kIn64Wide);
}

// The zip64 extra field for numbers that do not fit into 32 bits; empty if all of them fit.
std::string extra64(uint64_t size, uint64_t stored, uint64_t header) {
  Fields content;
  if (needs64(size)) content.u64(size).u64(stored);
  if (needs64(header)) content.u64(header);
  if (content.bytes().empty()) return {};
  return Fields().u16(zip::kZip64).u16(content.bytes().size()).text(content.bytes()).bytes();
}

// A record without data has no descriptor.
uint16_t flags_of(uint64_t size) {
  return size > 0 ? zip::kUtf8 | zip::kHasDescriptor : zip::kUtf8;
}

// An extra field without meaning whose length aligns the data.
std::string padding(uint64_t position) {
  constexpr uint64_t kHead = 4;
  const auto length = (kAlignment - (position + kHead) % kAlignment) % kAlignment;
  return Fields().text("FB").u16(length).text(std::string(length, 'Z')).bytes();
}

}  // namespace

void ZipWriter::put(const std::string& bytes) {
  file_.write(bytes.data(), bytes.size());
  position_ += bytes.size();
}

void ZipWriter::write(std::string_view name, const void* data, uint64_t size) {
  Record record{fmt::format("{}/{}", root_, name), position_, size, 0};
  auto extra = extra64(size, 0, record.header);
  const bool wide = !extra.empty();
  extra += padding(position_ + zip::kLocalSize + record.name.size() + extra.size());
  put(Fields()
          .u32(zip::kLocalHeader)
          .u16(0)
          .u16(flags_of(size))
          .u16(zip::kStored)
          .u32(0)  // no time
          .u32(0)  // the descriptor after the data has CRC-32 and sizes
          .u32(0)
          .u32(0)
          .u16(record.name.size())
          .u16(extra.size())
          .text(record.name)
          .text(extra)
          .bytes());
  constexpr uint64_t kChunk = uint64_t{256} << 10;  // hashed and written while it is in the cache
  for (uint64_t done = 0; done < size; done += kChunk) {
    const auto now = std::min(kChunk, size - done);
    const auto* bytes = static_cast<const char*>(data) + done;
    record.crc = crc32(record.crc, bytes, now);
    file_.write(bytes, now);
  }
  position_ += size;
  if (size > 0) {
    Fields descriptor;
    descriptor.u32(zip::kDescriptor).u32(record.crc);
    put((wide ? descriptor.u64(size).u64(size) : descriptor.u32(size).u32(size)).bytes());
  }
  records_.push_back(std::move(record));
}

void ZipWriter::put_central(const Record& record) {
  const auto extra = extra64(record.size, record.size, record.header);
  put(Fields()
          .u32(zip::kCentralHeader)
          .u16(0)
          .u16(0)
          .u16(flags_of(record.size))
          .u16(zip::kStored)
          .u32(0)
          .u32(record.crc)
          .u32(narrowed(record.size))
          .u32(narrowed(record.size))
          .u16(record.name.size())
          .u16(extra.size())
          .u16(0)  // no comment
          .u16(0)  // the first disk
          .u16(0)
          .u32(0)
          .u32(narrowed(record.header))
          .text(record.name)
          .text(extra)
          .bytes());
}

void ZipWriter::finish() {
  const auto directory = position_;
  for (const auto& record : records_) put_central(record);
  const auto end = position_, size = end - directory, count = static_cast<uint64_t>(records_.size());
  put(Fields()
          .u32(zip::kEnd64)
          .u64(zip::kEnd64Size - 12)
          .u16(kVersionMade)
          .u16(kVersionOfZip64)
          .u32(0)
          .u32(0)
          .u64(count)
          .u64(count)
          .u64(size)
          .u64(directory)
          .u32(zip::kLocator64)
          .u32(0)
          .u64(end)
          .u32(1)
          .bytes());
  const auto few = std::min<uint64_t>(count, zip::kIn64);
  put(Fields()
          .u32(zip::kEnd)
          .u32(0)
          .u16(few)
          .u16(few)
          .u32(narrowed(size))
          .u32(narrowed(directory))
          .u16(0)
          .bytes());
}

std::string ZipWriter::identity() const {
  uint32_t names = 0, data = 0;
  for (const auto& record : records_) {
    names = crc32(names, record.name.data(), record.name.size());
    data = crc32(data, &record.crc, sizeof(record.crc));
  }
  return fmt::format("{:020}{:020}", names, data);
}

}  // namespace attentive
