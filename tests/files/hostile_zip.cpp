#include <array>
#include <stdexcept>

#include "files/hostile_torch_file.h"

namespace attentive::test {
namespace {

struct Said {
  uint32_t crc;
  uint64_t size, packed;
};

Said said_of(const ZipEntry& entry) {
  return {entry.crc.value_or(crc32_of(entry.data)), entry.size.value_or(entry.data.size()),
          entry.packed.value_or(entry.data.size())};
}

std::string local_header(const ZipEntry& entry, const Said& said) {
  const auto name = entry.local_name.value_or(entry.name);
  return entry.local_signature + little(20, 2) + little(entry.local_flags.value_or(entry.flags), 2) +
         little(entry.local_method.value_or(entry.method), 2) + little(0, 4) +
         little(entry.local_crc.value_or(said.crc), 4) + little(entry.local_packed.value_or(said.packed), 4) +
         little(entry.local_size.value_or(said.size), 4) + little(name.size(), 2) +
         little(entry.local_extra.size(), 2) + name + entry.local_extra;
}

std::string directory_entry(const ZipEntry& entry, const Said& said, uint64_t offset) {
  return entry.signature + little(0, 2) + little(20, 2) + little(entry.flags, 2) + little(entry.method, 2) +
         little(0, 4) + little(said.crc, 4) + little(said.packed, 4) + little(said.size, 4) +
         little(entry.name.size(), 2) + little(entry.extra.size(), 2) + little(0, 2) + little(entry.disk, 2) +
         little(0, 6) + little(entry.offset.value_or(offset), 4) + entry.name + entry.extra;
}

struct Parts {
  std::string entries, directory;
};

Parts parts_of(const ZipFile& file) {
  Parts parts;
  parts.entries = file.prefix;
  for (const auto& entry : file.entries) {
    const auto said = said_of(entry);
    parts.directory += directory_entry(entry, said, parts.entries.size());
    parts.entries += local_header(entry, said);
    parts.entries += entry.data;
    parts.entries += entry.behind;
  }
  parts.entries += file.between;
  return parts;
}

}  // namespace

uint32_t crc32_of(std::string_view bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
      made[byte] = byte;
      for (int bit = 0; bit < 8; ++bit) made[byte] = made[byte] >> 1 ^ (made[byte] & 1 ? 0xedb88320 : 0);
    }
    return made;
  }();
  uint32_t crc = ~uint32_t{0};
  for (const unsigned char byte : bytes) crc = crc >> 8 ^ table[(crc ^ byte) & 0xff];
  return ~crc;
}

ZipEntry& ZipFile::entry(std::string_view name) {
  for (auto& entry : entries) {
    if (entry.name == name) return entry;
  }
  throw std::out_of_range("no entry " + std::string(name));
}

uint64_t ZipFile::directory() const {
  return parts_of(*this).entries.size();
}

std::string ZipFile::bytes() const {
  const auto parts = parts_of(*this);
  const uint64_t number = entries.size();
  return unseen + parts.entries + parts.directory + extra_end + "PK\x05\x06" + little(disk, 2) +
         little(disk, 2) + little(count_here.value_or(count.value_or(number)), 2) +
         little(count.value_or(number), 2) + little(directory_size.value_or(parts.directory.size()), 4) +
         little(directory_offset.value_or(parts.entries.size()), 4) +
         little(comment_size.value_or(comment.size()), 2) + comment + suffix;
}

ZipFile archive_of(std::string pickle) {
  ZipFile file;
  const bool storage = names_a_storage(pickle);
  file.entries.push_back({.name = "archive/data.pkl", .data = std::move(pickle)});
  file.entries.push_back({.name = "archive/byteorder", .data = "little"});
  if (storage) file.entries.push_back({.name = "archive/data/0", .data = six_floats()});
  file.entries.push_back({.name = "archive/version", .data = "3\n"});
  return file;
}

ZipFile with_zip64(ZipFile file, const Zip64End& end) {
  const auto parts = parts_of(file);
  const uint64_t number = file.entries.size(), at = parts.entries.size() + parts.directory.size();
  file.extra_end =
      end.signature + little(end.record_size.value_or(44), 8) + little(0x031e, 2) + little(45, 2) +
      little(0, 8) + little(end.count_here.value_or(end.count.value_or(number)), 8) +
      little(end.count.value_or(number), 8) + little(end.directory_size.value_or(parts.directory.size()), 8) +
      little(end.directory_offset.value_or(parts.entries.size()), 8) + end.locator_signature + little(0, 4) +
      little(end.record_offset.value_or(at), 8) + little(end.disks, 4);
  return file;
}

}  // namespace attentive::test
