#include "files/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <vector>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/version.h>

#include <attentive/files/safetensors.h>

#include "base/files.h"
#include "base/refusal.h"
#include "base/strings.h"
#include "core/check.h"
#include "files/dtypes.h"
#include "files/mapped_file.h"

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

namespace attentive {
namespace {

// One tensor of a safetensors header: its bytes are [begin, end) of the data after the header.
struct SafetensorsEntry {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::map<std::string, SafetensorsEntry> entries;
};

constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

bool is_float4(at::ScalarType dtype) {
  return find_torch_dtype(dtype)->safetensors == kFloat4;
}

// Tensors of higher rank are refused, which keeps the memory for a hostile header small.
constexpr size_t kMaxRank = 64;

// Reads the header event by event. It knows at each point what may follow, so excessive nesting is refused at
// the opening bracket; and it sees a duplicate key, which a parsed JSON object would hide.
class HeaderReader : public nlohmann::json::json_sax_t {
 public:
  explicit HeaderReader(SafetensorsHeader& header) : header_(header) {}

  bool key(std::string& name) override {
    switch (state_) {
      case State::Top:
        return top_key(name);
      case State::Metadata:
        key_ = name;
        if (header_.metadata.count(name)) refuse("__metadata__ holds {} twice", quoted_name(name));
        return true;
      case State::Entry:
        return entry_key(name);
      default:
        unexpected("a key");
    }
  }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::Start:
        state_ = State::Top;
        return true;
      case State::Top:
        state_ = in_metadata_ ? State::Metadata : State::Entry;
        seen_ = {};
        return true;
      default:
        unexpected("an object");
    }
  }

  bool end_object() override {
    if (state_ == State::Entry) {
      if (!seen_.dtype || !seen_.shape || !seen_.offsets) {
        refuse("tensor {}: no key \"{}\"", quoted_name(name_),
               !seen_.dtype   ? "dtype"
               : !seen_.shape ? "shape"
                              : "data_offsets");
      }
      if (is_float4(entry_->dtype)) pack_shape();
    }
    state_ = state_ == State::Top ? State::End : State::Top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::Entry || key_ == "dtype") unexpected("a list");
    state_ = State::List;
    return true;
  }

  bool end_array() override {
    state_ = State::Entry;
    if (key_ == "shape") return true;
    if (offsets_.size() != 2) {
      refuse("tensor {}: data_offsets must hold 2 numbers, got {}", quoted_name(name_), offsets_.size());
    }
    entry_->begin = offsets_[0];
    entry_->end = offsets_[1];
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::List) unexpected("a number");
    if (key_ == "data_offsets") {
      if (offsets_.size() == 2) {
        refuse("tensor {}: data_offsets must hold 2 numbers, got more", quoted_name(name_));
      }
      offsets_.push_back(value);
      return true;
    }
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      refuse("tensor {}: size {} in its shape is too large", quoted_name(name_), value);
    }
    if (entry_->shape.size() == kMaxRank) {
      refuse("tensor {}: its shape has more than {} sizes", quoted_name(name_), kMaxRank);
    }
    entry_->shape.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("a number that is no integer"); }
  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool string(string_t& value) override {
    if (state_ == State::Metadata) {
      header_.metadata.emplace(key_, value);
      return true;
    }
    if (state_ != State::Entry || key_ != "dtype") unexpected("a string");
    if (const auto* known = find_safetensors_dtype(value)) {
      entry_->dtype = known->dtype;
      return true;
    }
    if (value == kFloat4) {
      refuse("tensor {}: dtype F4 needs LibTorch 2.8 or newer, which has float4_e2m1fn_x2; this is {}",
             quoted_name(name_), TORCH_VERSION);
    }
    if (value == "F6_E2M3" || value == "F6_E3M2") {
      refuse("tensor {}: dtype {}, which no LibTorch has", quoted_name(name_), value);
    }
    refuse("tensor {}: unknown dtype {}", quoted_name(name_), quoted_name(value));
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    refuse("the header is not JSON (byte {} of it)", position);
  }

 private:
  enum class State { Start, Top, Metadata, Entry, List, End };

  [[noreturn]] void unexpected(std::string_view what) const {
    switch (state_) {
      case State::Start:
        refuse("the header must be a JSON object, got {}", what);
      case State::Top:
        refuse("the value of {} must be an object, got {}", quoted_name(name_), what);
      case State::Metadata:
        refuse("__metadata__ {}: expected a string, got {}", quoted_name(key_), what);
      default:
        refuse("tensor {}: expected {}, got {}", quoted_name(name_),
               key_ == "dtype"   ? "dtype to be a string"
               : key_ == "shape" ? "shape to be a list of non-negative integers"
                                 : "data_offsets to be two non-negative integers",
               what);
    }
  }

  bool top_key(const std::string& name) {
    name_ = name;
    in_metadata_ = name == "__metadata__";
    if (in_metadata_) {
      if (has_metadata_) refuse("__metadata__ comes twice");
      has_metadata_ = true;
      return true;
    }
    const auto [position, fresh] = header_.entries.try_emplace(name);
    if (!fresh) refuse("tensor {} comes twice", quoted_name(name));
    entry_ = &position->second;
    return true;
  }

  bool entry_key(const std::string& name) {
    bool* seen = name == "dtype"          ? &seen_.dtype
                 : name == "shape"        ? &seen_.shape
                 : name == "data_offsets" ? &seen_.offsets
                                          : nullptr;
    if (!seen) refuse("tensor {}: unknown key {}", quoted_name(name_), quoted_name(name));
    if (*seen) refuse("tensor {}: key {} comes twice", quoted_name(name_), quoted_name(name));
    *seen = true;
    key_ = name;
    offsets_.clear();
    return true;
  }

  // From 4-bit numbers, which the file counts, to LibTorch's bytes of two.
  void pack_shape() {
    auto& shape = entry_->shape;
    if (shape.empty() || shape.back() % 2 != 0) {
      refuse("tensor {}: dtype F4 needs an even last size, got shape {}", quoted_name(name_),
             shape_string(shape));
    }
    shape.back() /= 2;
  }

  struct Seen {
    bool dtype = false, shape = false, offsets = false;
  };

  SafetensorsHeader& header_;
  State state_ = State::Start;
  bool in_metadata_ = false;
  bool has_metadata_ = false;
  std::string name_;  // the current tensor's name
  std::string key_;   // the current key inside the tensor's entry or inside __metadata__
  SafetensorsEntry* entry_ = nullptr;
  Seen seen_;
  std::vector<uint64_t> offsets_;
};

// The number of bytes of a tensor; nothing on overflow. Another size that is 0 does not excuse an overflow,
// because strides are computed from all sizes.
std::optional<uint64_t> byte_count(const SafetensorsEntry& entry) {
  uint64_t bytes = c10::elementSize(entry.dtype);
  bool empty = false;
  for (const int64_t size : entry.shape) {
    if (size == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes) ||
               bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return std::nullopt;
    }
  }
  return empty ? 0 : bytes;
}

// Checks that every byte of the data belongs to exactly one tensor.
void check_ranges(const SafetensorsHeader& header, uint64_t data_size) {
  using NamedEntry = std::pair<const std::string, SafetensorsEntry>;
  std::vector<const NamedEntry*> items;
  for (const auto& item : header.entries) {
    const auto& [name, entry] = item;
    const auto bytes = byte_count(entry);
    if (!bytes) refuse("tensor {}: its shape overflows", quoted_name(name));
    if (entry.begin > entry.end) {
      refuse("tensor {}: data_offsets [{}, {}] end before they begin", quoted_name(name), entry.begin,
             entry.end);
    }
    if (entry.end - entry.begin != *bytes) {
      refuse("tensor {}: dtype {} and shape {} take {} bytes, data_offsets [{}, {}] hold {}",
             quoted_name(name), find_torch_dtype(entry.dtype)->safetensors, shape_string(entry.shape), *bytes,
             entry.begin, entry.end, entry.end - entry.begin);
    }
    if (entry.end > data_size) {
      refuse("tensor {}: its data end at byte {}, but the file holds {} bytes of data", quoted_name(name),
             entry.end, data_size);
    }
    items.push_back(&item);
  }
  std::sort(items.begin(), items.end(), [](const NamedEntry* a, const NamedEntry* b) {
    return std::tie(a->second.begin, a->second.end) < std::tie(b->second.begin, b->second.end);
  });
  uint64_t covered = 0;
  for (const auto* item : items) {
    if (item->second.begin < covered) refuse("tensor {} overlaps another tensor", quoted_name(item->first));
    if (item->second.begin > covered) {
      refuse("a hole of {} bytes before tensor {}", item->second.begin - covered, quoted_name(item->first));
    }
    covered = item->second.end;
  }
  if (covered != data_size) refuse("{} trailing bytes after the last tensor", data_size - covered);
}

// Parses the JSON text of a header and checks it against `data_size`, the number of bytes after it. Throws
// Refusal.
SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_size) {
  // Without this check, the parser would skip a byte order mark and stop at a NUL byte, neither of which is
  // JSON.
  if (text.empty() || text.front() != '{') refuse("the header does not begin with '{{'");
  if (text.find('\0') != std::string_view::npos) refuse("the header holds a NUL byte");
  if (!is_utf8(text)) refuse("the header is not UTF-8");
  SafetensorsHeader header;
  HeaderReader reader(header);
  (void)nlohmann::json::sax_parse(text, &reader);
  check_ranges(header, data_size);
  return header;
}

// Returns the call's result; a Refusal or a failed write becomes a SafetensorsError.
template <class Call>
auto named_by(const std::string& caller, const Call& call) {
  std::string reason;
  try {
    return call();
  } catch (const Refusal& refusal) {
    reason = refusal.what();
  } catch (const std::system_error& error) {
    reason = error.what();
  }
  throw SafetensorsError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                         fmt::format("{}: {}", caller, reason));
}

// A file's bytes in memory; `mapping` is set if tensors may refer to it.
struct Source {
  const char* data;
  size_t size;
  std::shared_ptr<MappedFile> mapping = {};
};

at::Tensor make_tensor(const std::string& name, const SafetensorsEntry& entry, const Source& source,
                       uint64_t data_begin) {
  const auto size = entry.end - entry.begin;
  const auto offset = data_begin + entry.begin;
  const auto* bytes = source.data + offset;
  if (entry.dtype == at::kBool && !are_bools(bytes, size)) {
    refuse("tensor {}: dtype BOOL holds a byte other than 0 and 1", quoted_name(name));
  }
  if (source.mapping && size > 0 && offset % c10::elementSize(entry.dtype) == 0) {
    return mapped_tensor(source.mapping, offset, entry.shape, entry.dtype);
  }
  auto tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.dtype).device(at::kCPU));
  if (size > 0) std::memcpy(tensor.mutable_data_ptr(), bytes, size);
  return tensor;
}

SafetensorsFile parse_header(const Source& source) {
  const auto size = source.size;
  uint64_t length = 0;
  if (size < sizeof(length)) refuse("{} bytes are too few for a safetensors file", size);
  std::memcpy(&length, source.data, sizeof(length));
  if (length > kMaxSafetensorsHeader) {
    refuse("a header of {} bytes is longer than the format's limit of {}", length, kMaxSafetensorsHeader);
  }
  if (length > size - sizeof(length)) {
    refuse("a header of {} bytes does not fit into a file of {} bytes", length, size);
  }
  const auto* text = source.data + sizeof(length);
  auto header = parse_safetensors_header({text, static_cast<size_t>(length)}, size - sizeof(length) - length);
  SafetensorsFile file;
  file.metadata = std::move(header.metadata);
  for (const auto& [name, entry] : header.entries) {
    file.tensors.emplace_hint(file.tensors.end(), name,
                              make_tensor(name, entry, source, sizeof(length) + length));
  }
  return file;
}

using Item = std::pair<const std::string, at::Tensor>;

// Checks everything that can be refused, before a byte is written.
void check_savable(const Item& item) {
  const auto& name = item.first;
  const auto& tensor = item.second;
  const auto fail = [&](std::string_view reason) { refuse("tensor {} {}", quoted_name(name), reason); };
  if (!is_utf8(name)) fail("has a name that is not UTF-8");
  if (name == "__metadata__") fail("has a reserved name");
  if (!tensor.defined()) fail("is undefined");
  if (tensor.layout() != at::kStrided) fail("is not dense");
  if (tensor.is_meta()) fail("has no data: it is on the meta device");
  const auto* known = find_torch_dtype(tensor.scalar_type());
  if (!known || known->safetensors.empty()) {
    fail(fmt::format("has dtype {}, which the format lacks", c10::toString(tensor.scalar_type())));
  }
  if (is_float4(tensor.scalar_type()) && tensor.dim() == 0) fail("has dtype F4 and no dimension");
}

std::string header_text(const std::vector<const Item*>& items,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    auto& strings = header["__metadata__"] = nlohmann::ordered_json::object();
    for (const auto& [key, value] : metadata) {
      if (!is_utf8(key) || !is_utf8(value)) refuse("metadata {} is not UTF-8", quoted_name(key));
      strings[key] = value;
    }
  }
  uint64_t begin = 0;
  for (const auto* item : items) {
    const auto& tensor = item->second;
    const uint64_t end = begin + static_cast<uint64_t>(tensor.numel()) * tensor.element_size();
    nlohmann::ordered_json entry;
    entry["dtype"] = find_torch_dtype(tensor.scalar_type())->safetensors;
    auto shape = tensor.sizes().vec();
    if (is_float4(tensor.scalar_type())) shape.back() *= 2;
    entry["shape"] = std::move(shape);
    entry["data_offsets"] = {begin, end};
    header[item->first] = std::move(entry);
    begin = end;
  }
  auto text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data begin at a multiple of 8
  if (text.size() > kMaxSafetensorsHeader) {
    refuse("a header of {} bytes is longer than the format's limit of {}", text.size(),
           kMaxSafetensorsHeader);
  }
  return text;
}

}  // namespace

SafetensorsFile load_safetensors(const std::filesystem::path& path, const SafetensorsOptions& options) {
  return named_by(fmt::format("load_safetensors: {}", path.string()), [&] {
    const ByteSource file(path);
    if (file.size() == 0) return parse_header({nullptr, 0});
    const auto mapping = std::make_shared<MappedFile>(file.descriptor(), file.size());
    return parse_header({mapping->data(), file.size(), options.map ? mapping : nullptr});
  });
}

SafetensorsFile parse_safetensors(const void* data, size_t size) {
  return named_by("parse_safetensors", [&] { return parse_header({static_cast<const char*>(data), size}); });
}

void write_safetensors(const std::string& caller, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(const void*, size_t)>& write) {
  std::vector<const Item*> items;
  const auto text = named_by(caller, [&] {
    for (const auto& item : tensors) {
      check_savable(item);
      items.push_back(&item);
    }
    const auto rank = [](const Item* item) { return find_torch_dtype(item->second.scalar_type()); };
    std::sort(items.begin(), items.end(), [&](const Item* a, const Item* b) {
      return rank(a) != rank(b) ? rank(a) < rank(b) : a->first < b->first;
    });
    return header_text(items, metadata);
  });
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
  named_by(caller, [&] {
    AtomicFile file(path);
    write_safetensors(caller, tensors, metadata,
                      [&](const void* data, size_t size) { file.write(data, size); });
    file.commit();
  });
}

}  // namespace attentive
