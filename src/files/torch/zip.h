#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "core/cpu_features.h"
#include "files/mapped_file.h"

namespace attentive {

/// Extends the CRC-32 of zip archives (polynomial 0xEDB88320, reflected) by more bytes. `before` is the
/// CRC-32 of the preceding bytes: crc32(crc32(0, a), b) is the CRC-32 of a followed by b.
uint32_t crc32(uint32_t before, const void* data, size_t size);

/// One implementation of CRC-32.
struct Crc32Method {
  const char* name;
  uint32_t (*run)(uint32_t before, const void* data, size_t size);
};

/// The methods that this processor supports, beginning with the portable one, which is the slowest.
std::vector<Crc32Method> crc32_methods();

/// The fastest method of a CPU within `limit`, as `kernels::cpu::select` chooses the kernels: "default"
/// leaves the portable one. `crc32` uses that of `this_cpu` within `cpu_limit`.
const Crc32Method& select_crc32(const CpuFeatures& cpu, std::string_view limit);

// Numbers and structures of the zip format (PKWARE's APPNOTE, sections 4.3 to 4.5), shared by reader and
// writer.
namespace zip {

static_assert(std::endian::native == std::endian::little, "zip files are little-endian");

inline constexpr uint32_t kLocalHeader = 0x04034B50;
inline constexpr uint32_t kDescriptor = 0x08074B50;
inline constexpr uint32_t kCentralHeader = 0x02014B50;
inline constexpr uint32_t kEnd = 0x06054B50;
inline constexpr uint32_t kEnd64 = 0x06064B50;
inline constexpr uint32_t kLocator64 = 0x07064B50;

inline constexpr uint64_t kLocalSize = 30;
inline constexpr uint64_t kCentralSize = 46;
inline constexpr uint64_t kEndSize = 22;
inline constexpr uint64_t kEnd64Size = 56;
inline constexpr uint64_t kLocator64Size = 20;
inline constexpr uint64_t kDescriptorSize = 16;
inline constexpr uint64_t kDescriptor64Size = 24;

inline constexpr uint16_t kHasDescriptor = 0x0008;
inline constexpr uint16_t kUtf8 = 0x0800;
inline constexpr uint16_t kStored = 0;
inline constexpr uint16_t kZip64 = 0x0001;  // id of the extra field

inline constexpr uint16_t kIn64 = 0xFFFF;  // means that the value is in a zip64 structure
inline constexpr uint32_t kIn64Wide = 0xFFFFFFFF;

template <class T>
T little(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

}  // namespace zip

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
  /// Whether the archive states checksums: `set_crc32_options(False)` writes 0 for every record.
  bool has_sums() const { return has_sums_; }
  /// Refuses the record unless `sum`, the CRC-32 of its bytes, is the one that the archive states, if it
  /// states any.
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
  bool has_sums_ = false;
  std::vector<ZipRecord> records_;
  std::vector<uint32_t> by_name_;
};

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
