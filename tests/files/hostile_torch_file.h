#pragma once

// Builds files that no honest program writes: pickles opcode by opcode, zip archives in which every field may
// be false, and files in the format before PyTorch 1.6. Nothing is checked here.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attentive::test {

/// More than any file has.
inline constexpr int64_t kHuge = int64_t{1} << 62;

/// Words of refusals of archives.
inline constexpr const char* kElsewhere = "central directory does not end where the end record begins";
inline constexpr const char* kParts = "a zip archive of several parts";

/// The lowest `bytes` bytes of an integer, little-endian.
std::string little(uint64_t value, size_t bytes);

std::string times(size_t count, std::string_view bytes);

/// The file formats, which hold the same pickles.
enum class Format { Zip, Legacy };

struct StorageOf {
  std::string type = "FloatStorage";
  std::string module = "torch";
  std::string key = "0";
  std::string location = "cpu";
  int64_t numel = 6;
};

struct TensorOf {
  StorageOf storage = {};
  int64_t offset = 0;
  std::vector<int64_t> sizes = {2, 3};
  std::vector<int64_t> strides = {3, 1};
  bool requires_grad = false;
};

class Pickle {
 public:
  /// Begins with the opcode PROTO, unless `protocol` is negative.
  explicit Pickle(int protocol = 2, Format format = Format::Zip);

  Pickle& raw(std::string_view bytes);
  /// Appends an opcode with an argument of `width` bytes.
  Pickle& op(char opcode, uint64_t argument, size_t width);
  /// Appends an opcode, a length of `width` bytes that may be false, and bytes.
  Pickle& counted(char opcode, size_t width, uint64_t length, std::string_view bytes);

  Pickle& integer(int64_t value);
  Pickle& floating(double value);
  Pickle& text(std::string_view utf8);
  Pickle& global(std::string_view module, std::string_view name);
  Pickle& put(uint8_t number) { return op('q', number, 1); }
  Pickle& get(uint8_t number) { return op('h', number, 1); }
  /// Appends a tuple of integers.
  Pickle& tuple(const std::vector<int64_t>& values);
  /// Appends REDUCE with the `count` (1 to 3) topmost values as arguments.
  Pickle& call(int count);

  /// Appends the persistent id of a storage, without the opcode that loads it.
  Pickle& storage_id(const StorageOf& storage);
  Pickle& storage(const StorageOf& storage) { return storage_id(storage).raw("Q"); }
  /// Appends `_rebuild_tensor_v2`, its arguments, and REDUCE.
  Pickle& tensor(const TensorOf& tensor = {});
  /// Appends the empty OrderedDict of backward hooks that ends the arguments.
  Pickle& hooks() { return global("collections", "OrderedDict").raw(")R"); }

  /// The bytes, followed by STOP.
  std::string stop() const { return bytes_ + "."; }
  const std::string& bytes() const { return bytes_; }
  Format format() const { return format_; }

 private:
  Format format_;
  std::string bytes_;
};

/// Fields that are not set have their true values.
struct ZipEntry {
  std::string name;
  std::string data;
  uint16_t flags = 0;
  uint16_t method = 0;
  std::optional<uint32_t> crc = {};
  std::optional<uint64_t> size = {};    ///< unpacked
  std::optional<uint64_t> packed = {};  ///< the size in the file
  std::optional<uint64_t> offset = {};  ///< of the local header
  std::string extra = {};               ///< in the central directory
  uint16_t disk = 0;
  /// Fields of the local header; those that are not set equal the central directory's.
  std::optional<std::string> local_name = {};
  std::optional<uint16_t> local_flags = {};
  std::optional<uint16_t> local_method = {};
  std::optional<uint32_t> local_crc = {};
  std::optional<uint64_t> local_size = {};
  std::optional<uint64_t> local_packed = {};
  std::string local_extra = {};
  std::string local_signature = "PK\x03\x04";
  std::string signature = "PK\x01\x02";
  std::string behind = {};  ///< bytes after the data, such as a data descriptor
};

struct ZipFile {
  std::vector<ZipEntry> entries;
  std::string prefix = {};     ///< before the first entry; included in the offsets
  std::string unseen = {};     ///< before everything; not included in the offsets
  std::string between = {};    ///< between the entries and the directory
  std::string extra_end = {};  ///< between the directory and the end record, such as zip64 records
  std::string comment = {};
  std::string suffix = {};
  std::optional<uint64_t> count = {}, count_here = {}, directory_size = {}, directory_offset = {},
                          comment_size = {};
  uint16_t disk = 0;

  ZipEntry& entry(std::string_view name);
  std::string bytes() const;
  /// The offset of the central directory.
  uint64_t directory() const;
};

uint32_t crc32_of(std::string_view bytes);

/// Whether a pickle names the class of a storage; the following functions then add a storage to the file.
bool names_a_storage(std::string_view pickle);
/// The archive that torch.save would write for this pickle, with a storage "0" of six floats 0 … 5.
ZipFile archive_of(std::string pickle);
/// The bytes of those floats.
std::string six_floats();

/// A zip64 end record and its locator; fields that are not set have the true values for `file`.
struct Zip64End {
  std::optional<uint64_t> count = {}, count_here = {}, directory_size = {}, directory_offset = {},
                          record_size = {}, record_offset = {};
  std::string signature = "PK\x06\x06";
  std::string locator_signature = "PK\x06\x07";
  uint32_t disks = 1;
};
/// Adds zip64 records to the end of a file, as torch.save writes them.
ZipFile with_zip64(ZipFile file, const Zip64End& end = {});

/// A file in the format before PyTorch 1.6: five pickles, then for each key a count and the bytes.
struct LegacyFile {
  std::string magic = {}, protocol = {}, system = {}, object = {}, keys = {};
  struct Storage {
    int64_t count = 6;
    std::string bytes = six_floats();
  };
  std::vector<Storage> storages = {};
  std::string suffix = {};
  std::string bytes() const;
};
LegacyFile legacy_of(std::string pickle);

/// The pickle in a file of either format, with the storage if the pickle mentions one.
std::string file_of(Format format, std::string pickle);

/// A raw deflate stream of zeros, about a thousandth of their size.
std::string deflated_zeros(uint64_t size);

/// A file, and the words that its refusal must contain, ignoring case.
struct HostileFile {
  std::string name;
  std::string bytes;
  std::vector<std::string> words;
};

/// A list of cases for one format.
class HostilePickles {
 public:
  explicit HostilePickles(Format format) : format_(format) {}

  Pickle pickle(int protocol = 2) const { return Pickle(protocol, format_); }
  /// Returns the first text for a zip file, and the second one for the old format, in which another pickle
  /// follows.
  std::string either(std::string zip, std::string legacy) const {
    return format_ == Format::Zip ? std::move(zip) : std::move(legacy);
  }
  /// Adds a pickle, followed by STOP, in an otherwise valid file.
  void add(std::string name, const Pickle& pickle, std::vector<std::string> words);
  /// Adds a pickle without appending STOP.
  void add_whole(std::string name, const Pickle& pickle, std::vector<std::string> words);
  std::vector<HostileFile> take() { return std::move(files_); }

 private:
  Format format_;
  std::vector<HostileFile> files_;
};

/// A valid archive with one tensor.
ZipFile good_archive();

/// A list of archives, made by changes to the valid one.
class HostileArchives {
 public:
  void add(std::string name, const std::string& bytes, std::vector<std::string> words);
  void add(std::string name, const ZipFile& file, std::vector<std::string> words);
  void changed(std::string name, const std::function<void(ZipFile&)>& change, std::vector<std::string> words);
  /// Adds a case with a change to one entry, which is named without the root.
  void entry(std::string name, const std::string& which, const std::function<void(ZipEntry&)>& change,
             std::vector<std::string> words);
  std::vector<HostileFile> take() { return std::move(files_); }

 private:
  std::vector<HostileFile> files_;
};

/// The beginning of a tuple that stays just below the default limit of values.
Pickle nine_million_values(Pickle pickle);

std::vector<HostileFile> hostile_opcodes(Format format);
std::vector<HostileFile> hostile_sizes(Format format);
std::vector<HostileFile> hostile_values(Format format);
std::vector<HostileFile> hostile_tensors(Format format);
std::vector<HostileFile> hostile_archives();
std::vector<HostileFile> hostile_records();
std::vector<HostileFile> hostile_legacy_files();

/// All files in groups, because some are large.
struct HostileGroup {
  std::string name;
  std::function<std::vector<HostileFile>()> files;
};
std::vector<HostileGroup> hostile_groups();

}  // namespace attentive::test
