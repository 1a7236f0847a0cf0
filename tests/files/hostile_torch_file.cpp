#include "files/hostile_torch_file.h"

#include <bit>

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

}  // namespace attentive::test
