#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "files/byte_source.h"

namespace attentive {

/// A file inside a zip archive, stored without compression.
struct ZipRecord {
  std::string_view name;  ///< the path below the archive's root
  uint64_t offset = 0;    ///< of its bytes in the archive
  uint64_t size = 0;
  uint64_t header = 0;  ///< offset of its local header
  uint32_t crc = 0;
  uint16_t flags = 0;
};

/// Reads the directory of a zip archive in the form that `torch.save` writes, strictly: every byte of the
/// file belongs to exactly one structure, and repeated fields must agree.
///
/// The end of the central directory is unique, at the end of the file and without a comment; zip64 structures
/// exist where fields refer to them; the archive has one disk. The records fill the file from the first byte
/// to the central directory; they are stored, not compressed or encrypted. Each local header, and the
/// descriptor after the data if there is one, agrees with the central directory. All names are UTF-8,
/// distinct, and below one root folder. Throws Refusal for anything else. The records' bytes are not read.
class ZipArchive {
 public:
  /// `source` must outlive this. A central directory beyond `max_directory` bytes is refused.
  ZipArchive(const ByteSource& source, uint64_t max_directory);

  std::string_view root() const { return root_; }
  /// The records, in the order of the file.
  const std::vector<ZipRecord>& records() const { return records_; }
  /// Finds a record by name; null if there is none.
  const ZipRecord* find(std::string_view name) const;

  /// Copies a record. With `check`, its CRC-32 must be right.
  void read(const ZipRecord& record, void* to, bool check = true) const;
  /// Refuses the record unless `sum`, the CRC-32 of its bytes, is the one that the archive states.
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
