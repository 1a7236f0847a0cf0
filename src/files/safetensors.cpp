#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>
#include <vector>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <attentive/files/safetensors.h>

#include "base/files.h"
#include "base/refusal.h"
#include "base/strings.h"
#include "files/byte_source.h"
#include "files/mapped_file.h"
#include "files/safetensors_header.h"

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

namespace attentive {
namespace {

[[noreturn]] void fail_safetensors(const std::string& caller, const std::string& reason) {
  throw SafetensorsError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                         fmt::format("{}: {}", caller, reason));
}

// A file's bytes in memory; `mapping` is set if tensors may refer to it.
struct Source {
  const char* data;
  size_t size;
  std::shared_ptr<MappedFile> mapping = {};
};

at::Tensor make_tensor(const std::string& caller, const std::string& name, const SafetensorsEntry& entry,
                       const Source& source, uint64_t data_begin) {
  const auto size = entry.end - entry.begin;
  const auto offset = data_begin + entry.begin;
  const auto* bytes = source.data + offset;
  if (entry.dtype == at::kBool) {
    const bool valid = std::all_of(bytes, bytes + size, [](unsigned char byte) { return byte <= 1; });
    if (!valid)
      fail_safetensors(
          caller, fmt::format("tensor {}: dtype BOOL holds a byte other than 0 and 1", quoted_name(name)));
  }
  if (source.mapping && size > 0 && offset % c10::elementSize(entry.dtype) == 0) {
    return mapped_tensor(source.mapping, offset, entry.shape, entry.dtype);
  }
  auto tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.dtype).device(at::kCPU));
  if (size > 0) std::memcpy(tensor.mutable_data_ptr(), bytes, size);
  return tensor;
}

SafetensorsFile parse_header(const std::string& caller, const Source& source) {
  const auto size = source.size;
  uint64_t length = 0;
  if (size < sizeof(length))
    fail_safetensors(caller, fmt::format("{} bytes are too few for a safetensors file", size));
  std::memcpy(&length, source.data, sizeof(length));
  if (length > kMaxSafetensorsHeader) {
    fail_safetensors(caller, fmt::format("a header of {} bytes is longer than the format's limit of {}",
                                         length, kMaxSafetensorsHeader));
  }
  if (length > size - sizeof(length)) {
    fail_safetensors(caller,
                     fmt::format("a header of {} bytes does not fit into a file of {} bytes", length, size));
  }
  const auto* text = source.data + sizeof(length);
  SafetensorsHeader header;
  const auto reason =
      parse_safetensors_header({text, static_cast<size_t>(length)}, size - sizeof(length) - length, header);
  if (reason) fail_safetensors(caller, *reason);

  SafetensorsFile file;
  file.metadata = std::move(header.metadata);
  for (const auto& [name, entry] : header.entries) {
    file.tensors.emplace_hint(file.tensors.end(), name,
                              make_tensor(caller, name, entry, source, sizeof(length) + length));
  }
  return file;
}

using Item = std::pair<const std::string, at::Tensor>;

// Checks everything that can be refused, before a byte is written.
void check_savable(const std::string& caller, const Item& item) {
  const auto& name = item.first;
  const auto& tensor = item.second;
  const auto refuse = [&](std::string_view reason) {
    fail_safetensors(caller, fmt::format("tensor {} {}", quoted_name(name), reason));
  };
  if (!is_utf8(name)) refuse("has a name that is not UTF-8");
  if (name == "__metadata__") refuse("has a reserved name");
  if (!tensor.defined()) refuse("is undefined");
  if (tensor.layout() != at::kStrided) refuse("is not dense");
  if (tensor.is_meta()) refuse("has no data: it is on the meta device");
  if (safetensors_dtype(tensor.scalar_type()).empty()) {
    refuse(fmt::format("has dtype {}, which the format lacks", c10::toString(tensor.scalar_type())));
  }
}

std::string header_text(const std::string& caller, const std::vector<const Item*>& items,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    auto& strings = header["__metadata__"] = nlohmann::ordered_json::object();
    for (const auto& [key, value] : metadata) {
      if (!is_utf8(key) || !is_utf8(value))
        fail_safetensors(caller, fmt::format("metadata {} is not UTF-8", quoted_name(key)));
      strings[key] = value;
    }
  }
  uint64_t begin = 0;
  for (const auto* item : items) {
    const auto& tensor = item->second;
    const uint64_t end = begin + static_cast<uint64_t>(tensor.numel()) * tensor.element_size();
    nlohmann::ordered_json entry;
    entry["dtype"] = safetensors_dtype(tensor.scalar_type());
    entry["shape"] = tensor.sizes().vec();
    entry["data_offsets"] = {begin, end};
    header[item->first] = std::move(entry);
    begin = end;
  }
  auto text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data begin at a multiple of 8
  if (text.size() > kMaxSafetensorsHeader) {
    fail_safetensors(caller, fmt::format("a header of {} bytes is longer than the format's limit of {}",
                                         text.size(), kMaxSafetensorsHeader));
  }
  return text;
}

}  // namespace

SafetensorsFile load_safetensors(const std::filesystem::path& path, const SafetensorsOptions& options) {
  const auto caller = fmt::format("load_safetensors: {}", path.string());
  try {
    const ByteSource file(path);
    if (file.size() == 0) return parse_header(caller, {nullptr, 0});
    const auto mapping = std::make_shared<MappedFile>(file.descriptor(), file.size());
    return parse_header(caller, {mapping->data(), file.size(), options.map ? mapping : nullptr});
  } catch (const Refusal& refusal) {
    fail_safetensors(caller, refusal.what());
  }
}

SafetensorsFile parse_safetensors(const void* data, size_t size) {
  return parse_header("parse_safetensors", {static_cast<const char*>(data), size});
}

void write_safetensors(const std::string& caller, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(const void*, size_t)>& write) {
  std::vector<const Item*> items;
  for (const auto& item : tensors) {
    check_savable(caller, item);
    items.push_back(&item);
  }
  const auto rank = [](const Item* item) { return safetensors_rank(item->second.scalar_type()); };
  std::sort(items.begin(), items.end(), [&](const Item* a, const Item* b) {
    return rank(a) != rank(b) ? rank(a) < rank(b) : a->first < b->first;
  });
  const auto text = header_text(caller, items, metadata);
  const uint64_t length = text.size();
  write(&length, sizeof(length));
  write(text.data(), text.size());
  for (const auto* item : items) {
    // Conjugation and negation may be pending flags; the file needs the resolved values.
    const auto data = item->second.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
    write(data.const_data_ptr(), data.nbytes());
  }
}

void save_safetensors(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const auto caller = fmt::format("save_safetensors: {}", path.string());
  try {
    AtomicFile file(path);
    write_safetensors(caller, tensors, metadata,
                      [&](const void* data, size_t size) { file.write(data, size); });
    file.commit();
  } catch (const std::system_error& error) {
    fail_safetensors(caller, error.what());
  }
}

}  // namespace attentive
