#include "files/torch/zip.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/refusal.h"
#include "base/strings.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attentive {
namespace {

// Polynomials over GF(2) modulo P are stored reflected: bit 31 - i is the coefficient of x^i. The state is
// the remainder of the message so far; a CRC-32 is the state inverted at the beginning and at the end.
constexpr uint32_t kPolynomial = 0xEDB88320;

constexpr uint32_t times_x(uint32_t value) {
  return (value >> 1) ^ ((value & 1) ? kPolynomial : 0);
}

constexpr size_t kSlices = 16;
using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

// tables[k][b]: how byte b changes the state when k more bytes follow it.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = times_x(state);
    tables[0][byte] = state;
  }
  for (size_t k = 1; k < kSlices; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const auto earlier = tables[k - 1][byte];
      tables[k][byte] = (earlier >> 8) ^ tables[0][earlier & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

// Processes sixteen bytes per step, each with a table of its own.
uint32_t update_by_tables(uint32_t state, const unsigned char* data, size_t size) {
  static_assert(std::endian::native == std::endian::little);
  for (; size >= kSlices; data += kSlices, size -= kSlices) {
    std::array<uint32_t, 4> words;
    std::memcpy(words.data(), data, kSlices);
    words[0] ^= state;
    state = 0;
    for (size_t k = 0; k < kSlices; ++k) {
      state ^= kTables[kSlices - 1 - k][(words[k / 4] >> (8 * (k % 4))) & 0xFF];
    }
  }
  for (; size > 0; ++data, --size) state = (state >> 8) ^ kTables[0][(state ^ *data) & 0xFF];
  return state;
}

#if defined(__x86_64__)

// The carry-less product of two reflected 64-bit polynomials a and b, read as a reflected 128-bit one, is a *
// b * x. Therefore x^(n - 1) mod P in the upper half of a 64-bit word multiplies by x^n.
constexpr long long power_of_x(int n) {
  uint32_t value = 0x80000000;
  for (int i = 1; i < n; ++i) value = times_x(value);
  return static_cast<long long>(static_cast<uint64_t>(value) << 32);
}

// fold() moves a block of 128 bits to the position `kDistance` bits later. The first 8 bytes of a block, its
// low half, have the higher powers.
#define ATTENTIVE_TARGET __attribute__((target("pclmul,sse4.1")))

template <int kDistance>
ATTENTIVE_TARGET inline __m128i fold(__m128i block, __m128i next) {
  constexpr auto kHigh = power_of_x(kDistance + 64), kLow = power_of_x(kDistance);
  const __m128i powers = _mm_set_epi64x(kLow, kHigh);
  return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(block, powers, 0x00),
                                           _mm_clmulepi64_si128(block, powers, 0x11)));
}

ATTENTIVE_TARGET inline __m128i load(const unsigned char* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

// Keeps four interleaved blocks. The sum of the blocks, each moved to the end of the message, is congruent to
// the message, so they may replace it if the state is set to zero.
ATTENTIVE_TARGET uint32_t update_by_pclmul(uint32_t state, const unsigned char* data, size_t size) {
  constexpr size_t kStep = 64;
  if (size < 4 * kStep) return update_by_tables(state, data, size);
  __m128i blocks[4];
  for (int i = 0; i < 4; ++i) blocks[i] = load(data + 16 * i);
  blocks[0] = _mm_xor_si128(blocks[0], _mm_cvtsi32_si128(static_cast<int>(state)));
  for (data += kStep, size -= kStep; size >= kStep; data += kStep, size -= kStep) {
    for (int i = 0; i < 4; ++i) blocks[i] = fold<512>(blocks[i], load(data + 16 * i));
  }
  unsigned char rest[kStep];
  std::memcpy(rest, blocks, kStep);
  return update_by_tables(update_by_tables(0, rest, kStep), data, size);
}
#undef ATTENTIVE_TARGET

#endif

template <uint32_t (*update)(uint32_t, const unsigned char*, size_t)>
uint32_t run(uint32_t before, const void* data, size_t size) {
  return ~update(~before, static_cast<const unsigned char*>(data), size);
}

constexpr Crc32Method kByTables = {"tables", run<update_by_tables>};
#if defined(__x86_64__)
constexpr Crc32Method kByPclmul = {"pclmul", run<update_by_pclmul>};
#endif

}  // namespace

const Crc32Method& select_crc32([[maybe_unused]] const CpuFeatures& cpu,
                                [[maybe_unused]] std::string_view limit) {
#if defined(__x86_64__)
  if (cpu.pclmul && limit != "default") return kByPclmul;
#endif
  return kByTables;
}

std::vector<Crc32Method> crc32_methods() {
  std::vector<Crc32Method> methods = {kByTables};
  const auto& fastest = select_crc32(this_cpu(), "");
  if (&fastest != &kByTables) methods.push_back(fastest);
  return methods;
}

uint32_t crc32(uint32_t before, const void* data, size_t size) {
  static const auto& method = select_crc32(this_cpu(), cpu_limit());
  return method.run(before, data, size);
}

namespace {

using zip::little;

struct Directory {
  uint64_t entries = 0;
  uint64_t size = 0;
  uint64_t offset = 0;
};

// A 16- or 32-bit field of the end record must equal the zip64 field, or be all ones, which refers to it.
template <class T>
void check_field(T narrow, uint64_t wide) {
  if (narrow != wide && narrow != static_cast<T>(-1)) {
    refuse("its two ends of the central directory disagree: {} and {}", narrow, wide);
  }
}

// Reads the zip64 end record and its locator, which directly precede the end record.
Directory find_directory64(const ByteSource& source, uint64_t locator, const Directory& narrow) {
  std::array<char, zip::kEnd64Size + zip::kLocator64Size> bytes;
  if (locator < zip::kEnd64Size) refuse("a zip archive without room for its zip64 end");
  const auto position = locator - zip::kEnd64Size;
  source.read(position, bytes.data(), bytes.size());
  const auto* end = bytes.data();
  const auto* link = end + zip::kEnd64Size;
  if (little<uint32_t>(link + 4) != 0 || little<uint32_t>(link + 16) != 1)
    refuse("a zip archive of several parts");
  if (little<uint64_t>(link + 8) != position || little<uint32_t>(end) != zip::kEnd64 ||
      little<uint64_t>(end + 4) != zip::kEnd64Size - 12) {
    refuse("its zip64 end of the central directory is not right before the other one");
  }
  if (little<uint32_t>(end + 16) != 0 || little<uint32_t>(end + 20) != 0) {
    refuse("a zip archive of several parts");
  }
  const Directory wide{little<uint64_t>(end + 32), little<uint64_t>(end + 40), little<uint64_t>(end + 48)};
  if (little<uint64_t>(end + 24) != wide.entries) refuse("a zip archive of several parts");
  check_field(static_cast<uint16_t>(narrow.entries), wide.entries);
  check_field(static_cast<uint32_t>(narrow.size), wide.size);
  check_field(static_cast<uint32_t>(narrow.offset), wide.offset);
  if (wide.size > position || wide.offset != position - wide.size) {
    refuse("its central directory does not end where the end record begins");
  }
  return wide;
}

Directory find_directory(const ByteSource& source) {
  if (source.size() < zip::kEndSize) refuse("{} bytes are too few for a zip archive", source.size());
  const auto position = source.size() - zip::kEndSize;
  std::array<char, zip::kEndSize> end;
  source.read(position, end.data(), end.size());
  if (little<uint32_t>(end.data()) != zip::kEnd || little<uint16_t>(end.data() + 20) != 0) {
    refuse("no zip end of central directory at its end: truncated, or followed by something else");
  }
  const Directory found{little<uint16_t>(end.data() + 10), little<uint32_t>(end.data() + 12),
                        little<uint32_t>(end.data() + 16)};
  if (little<uint16_t>(end.data() + 4) != 0 || little<uint16_t>(end.data() + 6) != 0 ||
      little<uint16_t>(end.data() + 8) != found.entries) {
    refuse("a zip archive of several parts");
  }
  if (position >= zip::kLocator64Size) {
    std::array<char, 4> signature;
    source.read(position - zip::kLocator64Size, signature.data(), signature.size());
    if (little<uint32_t>(signature.data()) == zip::kLocator64) {
      return find_directory64(source, position - zip::kLocator64Size, found);
    }
  }
  if (found.size > position || found.offset != position - found.size) {
    refuse("its central directory does not end where the end record begins");
  }
  return found;
}

// Replaces sizes and offset that are marked as "in the zip64 extra field" by the values there.
void resolve64(std::string_view extra, std::initializer_list<uint64_t*> fields, std::string_view name) {
  if (!extra.empty() && extra.size() < 4) refuse("record {} has a broken extra field", quoted_name(name));
  if (std::none_of(fields.begin(), fields.end(), [](const uint64_t* f) { return *f == zip::kIn64Wide; }))
    return;
  while (extra.size() >= 4) {
    const auto size = little<uint16_t>(extra.data() + 2);
    if (size > extra.size() - 4) break;
    auto content = extra.substr(4, size);
    if (little<uint16_t>(extra.data()) == zip::kZip64) {
      for (auto* field : fields) {
        if (*field != zip::kIn64Wide) continue;
        if (content.size() < 8) refuse("record {} lacks a size in its zip64 field", quoted_name(name));
        *field = little<uint64_t>(content.data());
        content.remove_prefix(8);
      }
      return;
    }
    extra.remove_prefix(4 + size);
  }
  refuse("record {} lacks its zip64 field", quoted_name(name));
}

// Names are never used as paths, but torch.save writes none that leads out of the root folder.
bool is_plain_path(std::string_view name) {
  if (!is_utf8(name) || name.find_first_of(std::string_view("\\\0", 2)) != std::string_view::npos)
    return false;
  for (size_t begin = 0; begin <= name.size();) {
    const auto end = std::min(name.find('/', begin), name.size());
    const auto part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

ZipArchive::ZipArchive(const ByteSource& source, uint64_t max_directory) : source_(source) {
  read_directory(max_directory);
  read_names();
  read_local_headers();
}

void ZipArchive::read_directory(uint64_t max_directory) {
  const auto found = find_directory(source_);
  if (found.size > max_directory) {
    refuse("a central directory of {} bytes exceeds the limit of {} (max_pickle_bytes)", found.size,
           max_directory);
  }
  if (found.entries > found.size / zip::kCentralSize) {
    refuse("{} records do not fit into a central directory of {} bytes", found.entries, found.size);
  }
  directory_ = std::make_unique<char[]>(found.size);
  directory_offset_ = found.offset;
  source_.read(found.offset, directory_.get(), found.size);
  std::string_view rest(directory_.get(), found.size);
  records_.reserve(found.entries);
  while (!rest.empty()) {
    if (rest.size() < zip::kCentralSize || little<uint32_t>(rest.data()) != zip::kCentralHeader) {
      refuse("its central directory is damaged after record {}", records_.size());
    }
    const auto* entry = rest.data();
    const size_t name = little<uint16_t>(entry + 28), extra = little<uint16_t>(entry + 30);
    const size_t length = zip::kCentralSize + name + extra + little<uint16_t>(entry + 32);
    if (length > rest.size()) refuse("its central directory is damaged after record {}", records_.size());
    ZipRecord record;
    record.name = rest.substr(zip::kCentralSize, name);
    record.flags = little<uint16_t>(entry + 8);
    record.crc = little<uint32_t>(entry + 16);
    has_sums_ = has_sums_ || record.crc != 0;
    uint64_t stored = little<uint32_t>(entry + 20);
    record.size = little<uint32_t>(entry + 24);
    record.header = little<uint32_t>(entry + 42);
    resolve64(rest.substr(zip::kCentralSize + name, extra), {&record.size, &stored, &record.header},
              record.name);
    if (little<uint16_t>(entry + 10) != zip::kStored) {
      refuse("record {} is compressed: torch.save stores, but TorchScript compresses",
             quoted_name(record.name));
    }
    if ((record.flags & ~(zip::kHasDescriptor | zip::kUtf8)) != 0) {
      refuse("record {} is encrypted or otherwise special (flags {:#06x})", quoted_name(record.name),
             record.flags);
    }
    if (stored != record.size) {
      refuse("record {} is stored, but in {} bytes instead of {}", quoted_name(record.name), stored,
             record.size);
    }
    if (little<uint16_t>(entry + 34) != 0) refuse("a zip archive of several parts");
    records_.push_back(record);
    rest.remove_prefix(length);
  }
  if (records_.size() != found.entries) {
    refuse("its central directory holds {} records, not {}", records_.size(), found.entries);
  }
  if (records_.empty()) refuse("a zip archive without records");
}

void ZipArchive::read_names() {
  for (auto& record : records_) {
    if (!is_plain_path(record.name)) refuse("record {} has no plain name", quoted_name(record.name));
    const auto slash = record.name.find('/');
    if (slash == std::string_view::npos) {
      refuse("record {} lies outside a root folder", quoted_name(record.name));
    }
    const auto root = record.name.substr(0, slash);
    if (root_.empty()) root_ = root;
    if (root != root_) {
      refuse("it has two root folders, {} and {}", quoted_name(root_), quoted_name(root));
    }
    record.name.remove_prefix(slash + 1);
  }
  std::sort(records_.begin(), records_.end(),
            [](const ZipRecord& a, const ZipRecord& b) { return a.header < b.header; });
  by_name_.resize(records_.size());
  for (uint32_t i = 0; i < by_name_.size(); ++i) by_name_[i] = i;
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return records_[a].name < records_[b].name; });
  const auto twice = std::adjacent_find(by_name_.begin(), by_name_.end(), [&](uint32_t a, uint32_t b) {
    return records_[a].name == records_[b].name;
  });
  if (twice != by_name_.end()) refuse("it holds record {} twice", quoted_name(records_[*twice].name));
}

void ZipArchive::read_local_headers() {
  if (records_.front().header != 0) refuse("its first record does not begin at its first byte");
  for (size_t i = 0; i < records_.size(); ++i) {
    const auto next = i + 1 < records_.size() ? records_[i + 1].header : directory_offset_;
    check_local_header(records_[i], next, records_[i]);
  }
}

void ZipArchive::check_local_header(const ZipRecord& record, uint64_t next, ZipRecord& result) const {
  const auto disagrees = [&] {
    refuse("record {}: its local header differs from the central directory", quoted_name(record.name));
  };
  const auto name = root_.size() + 1 + record.name.size();
  if (next > directory_offset_ || record.header > next || next - record.header < zip::kLocalSize + name) {
    refuse("record {} overlaps the next one", quoted_name(record.name));
  }
  std::string header(zip::kLocalSize + name, '\0');
  source_.read(record.header, header.data(), header.size());
  const auto* fields = header.data();
  if (little<uint32_t>(fields) != zip::kLocalHeader || little<uint16_t>(fields + 6) != record.flags ||
      little<uint16_t>(fields + 8) != zip::kStored || little<uint16_t>(fields + 26) != name ||
      header.compare(zip::kLocalSize, root_.size(), root_) != 0 ||
      header.compare(zip::kLocalSize + root_.size(), 1, "/") != 0 ||
      header.compare(zip::kLocalSize + root_.size() + 1, std::string::npos, record.name) != 0) {
    disagrees();
  }
  const uint64_t extra = little<uint16_t>(fields + 28);
  const auto room = next - record.header - header.size();
  if (extra > room || record.size > room - extra) {
    refuse("record {} overlaps the next one", quoted_name(record.name));
  }
  const bool described = (record.flags & zip::kHasDescriptor) != 0;
  uint64_t stored = little<uint32_t>(fields + 18), size = little<uint32_t>(fields + 22);
  if (stored == zip::kIn64Wide || size == zip::kIn64Wide) {
    std::string field(extra, '\0');
    source_.read(record.header + header.size(), field.data(), field.size());
    resolve64(field, {&size, &stored}, record.name);
  }
  // If a descriptor follows the data, the header may have 0 for fields that were not known yet.
  const auto agrees = [&](uint64_t got, uint64_t want) { return got == want || (described && got == 0); };
  if (!agrees(little<uint32_t>(fields + 14), record.crc) || !agrees(stored, record.size) ||
      !agrees(size, record.size)) {
    disagrees();
  }
  result.offset = record.header + header.size() + extra;
  const auto after = room - extra - record.size;
  if (!described) {
    if (after != 0) refuse("{} bytes after record {} belong to nothing", after, quoted_name(record.name));
    return;
  }
  std::array<char, zip::kDescriptor64Size> bytes;
  const bool wide = after == zip::kDescriptor64Size;
  if (!wide && after != zip::kDescriptorSize) {
    refuse("{} bytes after record {} are not a data descriptor", after, quoted_name(record.name));
  }
  source_.read(result.offset + record.size, bytes.data(), after);
  stored = wide ? little<uint64_t>(bytes.data() + 8) : little<uint32_t>(bytes.data() + 8);
  size = wide ? little<uint64_t>(bytes.data() + 16) : little<uint32_t>(bytes.data() + 12);
  if (little<uint32_t>(bytes.data()) != zip::kDescriptor ||
      little<uint32_t>(bytes.data() + 4) != record.crc || stored != record.size || size != record.size) {
    refuse("record {}: its data descriptor differs from the central directory", quoted_name(record.name));
  }
}

const ZipRecord* ZipArchive::find(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](uint32_t i, std::string_view n) { return records_[i].name < n; });
  return found != by_name_.end() && records_[*found].name == name ? &records_[*found] : nullptr;
}

void ZipArchive::read(const ZipRecord& record, void* to, bool check) const {
  if (!check) return source_.read(record.offset, to, record.size);
  check_sum(record, source_.read_and_sum(record.offset, to, record.size));
}

void ZipArchive::check_sum(const ZipRecord& record, uint32_t sum) const {
  if (has_sums_ && sum != record.crc) {
    refuse("record {} is damaged: its CRC-32 is {:08x}, not {:08x}", quoted_name(record.name), sum,
           record.crc);
  }
}

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
