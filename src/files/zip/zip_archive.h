#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "files/byte_source.h"

namespace attentive {

/// A file inside a zip archive, stored as it is.
struct ZipRecord {
  std::string_view name;  ///< below the archive's root
  uint64_t offset = 0;    ///< of its bytes in the archive
  uint64_t size = 0;
  uint64_t header = 0;  ///< offset of its local header
  uint32_t crc = 0;
  uint16_t flags = 0;
};

/// The directory of a zip archive as `torch.save` writes it, read strictly: every byte of the file belongs to
/// exactly one thing, and what is said twice is said equally.
///
/// There is one end of the central directory, at the end of the file and without a comment; zip64 where the
/// file says so; one disk. The records lie one after another from the first byte to the central directory;
/// they are stored, not compressed or encrypted; each local header, and the descriptor after the data where
/// there is one, says what the central directory says. All names are UTF-8, distinct and below one root
/// folder. Anything else is a Refusal. The records' bytes are not read.
class ZipArchive {
 public:
  /// `source` must outlive this. A central directory beyond `max_directory` bytes is refused.
  ZipArchive(const ByteSource& source, uint64_t max_directory);

  std::string_view root() const { return root_; }
  /// As they lie in the file.
  const std::vector<ZipRecord>& records() const { return records_; }
  /// The record of this name, or null.
  const ZipRecord* find(std::string_view name) const;

  /// Copies a record; with `check` its CRC-32 must be right.
  void read(const ZipRecord& record, void* to, bool check = true) const;
  /// Refuses a record whose bytes, which lie at `data`, have another CRC-32.
  void check_sum(const ZipRecord& record, uint32_t sum) const;

 private:
  void read_directory(uint64_t max_directory);
  void read_names();
  void read_local_headers();
  void check_local_header(const ZipRecord& record, uint64_t next, ZipRecord& result) const;

  const ByteSource& source_;
  std::unique_ptr<char[]> directory_;
  uint64_t directory_offset_ = 0;
  std::string_view root_;
  std::vector<ZipRecord> records_;
  std::vector<uint32_t> by_name_;
};

}  // namespace attentive
