#include "files/hostile_torch_file.h"

#include <array>
#include <bit>
#include <stdexcept>

namespace attentive::test {

std::string little(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(i < 8 ? value >> (8 * i) & 0xff : 0);
  return text;
}

std::string times(size_t count, std::string_view bytes) {
  if (bytes.size() == 1) return std::string(count, bytes[0]);
  std::string text;
  text.reserve(count * bytes.size());
  for (size_t i = 0; i < count; ++i) text += bytes;
  return text;
}

Pickle::Pickle(int protocol, Format format) : format_(format) {
  if (protocol >= 0) op('\x80', static_cast<uint64_t>(protocol), 1);
}

Pickle& Pickle::raw(std::string_view bytes) {
  bytes_ += bytes;
  return *this;
}

Pickle& Pickle::op(char opcode, uint64_t argument, size_t width) {
  bytes_ += opcode;
  bytes_ += little(argument, width);
  return *this;
}

Pickle& Pickle::counted(char opcode, size_t width, uint64_t length, std::string_view bytes) {
  return op(opcode, length, width).raw(bytes);
}

Pickle& Pickle::integer(int64_t value) {
  if (value >= 0 && value < 256) return op('K', static_cast<uint64_t>(value), 1);
  return counted('\x8a', 1, 8, little(static_cast<uint64_t>(value), 8));
}

Pickle& Pickle::floating(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  bytes_ += 'G';
  for (int shift = 56; shift >= 0; shift -= 8) bytes_ += static_cast<char>(bits >> shift & 0xff);
  return *this;
}

Pickle& Pickle::text(std::string_view utf8) {
  return counted('X', 4, utf8.size(), utf8);
}

Pickle& Pickle::global(std::string_view module, std::string_view name) {
  return raw("c").raw(module).raw("\n").raw(name).raw("\n");
}

Pickle& Pickle::tuple(const std::vector<int64_t>& values) {
  raw("(");
  for (const auto value : values) integer(value);
  return raw("t");
}

Pickle& Pickle::call(int count) {
  return op(static_cast<char>('\x84' + count), 0, 0).raw("R");
}

Pickle& Pickle::storage_id(const StorageOf& storage) {
  raw("(").text("storage").global(storage.module, storage.type).text(storage.key).text(storage.location);
  integer(storage.numel);
  if (format_ == Format::Legacy) raw("N");  // no view of another storage
  return raw("t");
}

Pickle& Pickle::tensor(const TensorOf& tensor) {
  global("torch._utils", "_rebuild_tensor_v2").raw("(").storage(tensor.storage).integer(tensor.offset);
  tuple(tensor.sizes).tuple(tensor.strides).raw(tensor.requires_grad ? "\x88" : "\x89");
  return hooks().raw("tR");
}

std::string six_floats() {
  std::string bytes;
  for (int i = 0; i < 6; ++i) bytes += little(std::bit_cast<uint32_t>(static_cast<float>(i)), 4);
  return bytes;
}

std::string LegacyFile::bytes() const {
  std::string bytes = magic + protocol + system + object + keys;
  for (const auto& storage : storages)
    bytes += little(static_cast<uint64_t>(storage.count), 8) + storage.bytes;
  return bytes + suffix;
}

bool names_a_storage(std::string_view pickle) {
  return pickle.find("Storage\n") != std::string_view::npos;
}

// The number of elements if the six floats are in a storage of the class that a pickle names first.
int64_t count_of_storage(std::string_view pickle) {
  const auto end = pickle.find("Storage\n");
  const auto name = pickle.substr(0, end);
  for (const std::string_view bytes : {"Bool", "Untyped", "QInt8"}) {
    if (name.ends_with(bytes)) return 24;
  }
  return name.ends_with("Double") || name.ends_with("ComplexFloat") ? 3 : 6;
}

LegacyFile legacy_of(std::string pickle) {
  constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
  LegacyFile file;
  file.magic = Pickle().counted('\x8a', 1, kMagic.size(), kMagic).stop();
  file.protocol = Pickle().integer(1001).stop();
  Pickle sizes;
  sizes.raw("}(").text("protocol_version").integer(1001).text("little_endian").raw("\x88");
  sizes.text("type_sizes").raw("}(").text("short").integer(2).text("int").integer(4).text("long").integer(4);
  file.system = sizes.raw("uu").stop();
  const bool storage = names_a_storage(pickle);
  file.object = std::move(pickle);
  file.keys = storage ? Pickle().raw("]").text("0").raw("a").stop() : Pickle().raw("]").stop();
  if (storage) file.storages.push_back({.count = count_of_storage(file.object)});
  return file;
}

std::string file_of(Format format, std::string pickle) {
  // A storage that is never mentioned would be an error of its own.
  const bool mentioned = pickle.find("Storage") != std::string::npos;
  if (format == Format::Zip) {
    auto file = archive_of(std::move(pickle));
    if (!mentioned) std::erase_if(file.entries, [](const auto& e) { return e.name == "archive/data/0"; });
    return file.bytes();
  }
  auto file = legacy_of(std::move(pickle));
  if (!mentioned) {
    file.keys = Pickle().raw("]").stop();
    file.storages.clear();
  }
  return file.bytes();
}

std::string deflated_zeros(uint64_t size) {
  std::string bytes;
  uint64_t bits = 0;
  int count = 0;
  const auto put = [&](uint64_t value, int width) {  // beginning with the lowest bit
    bits |= value << count;
    for (count += width; count >= 8; count -= 8, bits >>= 8) bytes += static_cast<char>(bits & 0xff);
  };
  put(1, 1), put(1, 2);  // the last block, with fixed codes
  put(0x0c, 8);          // a zero byte: code 0x30, highest bit first
  uint64_t made = 1;
  for (; made + 258 <= size; made += 258) {
    put(0xa3, 8);  // length 258: code 0xc5
    put(0, 5);     // distance of one byte
  }
  for (; made < size; ++made) put(0x0c, 8);
  put(0, 7);  // the end of the block
  put(0, 7);  // padding to a whole byte
  return bytes;
}

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
  const uint64_t number = file.entries.size(), offset = parts.entries.size() + parts.directory.size();
  file.extra_end =
      end.signature + little(end.record_size.value_or(44), 8) + little(0x031e, 2) + little(45, 2) +
      little(0, 8) + little(end.count_here.value_or(end.count.value_or(number)), 8) +
      little(end.count.value_or(number), 8) + little(end.directory_size.value_or(parts.directory.size()), 8) +
      little(end.directory_offset.value_or(parts.entries.size()), 8) + end.locator_signature + little(0, 4) +
      little(end.record_offset.value_or(offset), 8) + little(end.disks, 4);
  return file;
}

}  // namespace attentive::test
