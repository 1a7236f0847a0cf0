#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace attentive {

/// Writes a zip archive in the layout of `torch.save`: stored records below one root folder; each record's
/// data at a multiple of 64 bytes, followed by a descriptor with CRC-32 and sizes; zip64 fields where a
/// number needs them; always a zip64 end record. Every member throws std::system_error.
class ZipWriter {
 public:
  /// Writes into `file`, which must outlive this object, from its beginning.
  ZipWriter(AtomicFile& file, std::string root) : file_(file), root_(std::move(root)) {}

  void write(std::string_view name, const void* data, uint64_t size);
  void write(std::string_view name, std::string_view text) { write(name, text.data(), text.size()); }
  /// Writes the central directory. Nothing may be written afterwards.
  void finish();

  /// A digest of the names and data so far: equal archives have equal digests.
  std::string identity() const;

 private:
  struct Record {
    std::string name;
    uint64_t header;
    uint64_t size;
    uint32_t crc;
  };

  void put(const std::string& bytes);
  void put_central(const Record& record);

  AtomicFile& file_;
  std::string root_;
  std::vector<Record> records_;
  uint64_t position_ = 0;
};

}  // namespace attentive
