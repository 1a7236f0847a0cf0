#include "files/zip/zip_archive.h"

#include <algorithm>
#include <array>

#include "base/refusal.h"
#include "base/strings.h"
#include "files/zip/zip_format.h"

namespace attentive {
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
  if (sum != record.crc) {
    refuse("record {} is damaged: its CRC-32 is {:08x}, not {:08x}", quoted_name(record.name), sum,
           record.crc);
  }
}

}  // namespace attentive
