#include "files/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/refusal.h"
#include "base/strings.h"
#include "core/check.h"

namespace attentive {
namespace {

struct DtypeName {
  std::string_view name;
  at::ScalarType dtype;
};

// In the order of tensors in a file, which is also that of the format's own writer.
constexpr DtypeName kSafetensorsDtypes[] = {
    {"U64", at::kUInt64},
    {"I64", at::kLong},
    {"F64", at::kDouble},
    {"C64", at::kComplexFloat},
    {"F32", at::kFloat},
    {"U32", at::kUInt32},
    {"I32", at::kInt},
    {"BF16", at::kBFloat16},
    {"F16", at::kHalf},
    {"U16", at::kUInt16},
    {"I16", at::kShort},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"I8", at::kChar},
    {"U8", at::kByte},
    {"BOOL", at::kBool},
};

// Tensors of higher rank are refused, which keeps the memory for a hostile header small.
constexpr size_t kMaxRank = 64;

// Reads the header event by event. It knows at each point what may follow, so excessive nesting is refused at
// the opening bracket; and it sees a duplicate key, which a parsed JSON object would hide.
class HeaderReader : public nlohmann::json::json_sax_t {
 public:
  explicit HeaderReader(SafetensorsHeader& header) : header_(header) {}

  const std::string& reason() const { return reason_; }

  bool key(std::string& name) override {
    switch (state_) {
      case State::Top:
        return top_key(name);
      case State::Metadata:
        key_ = name;
        if (header_.metadata.count(name))
          return refuse(fmt::format("__metadata__ holds {} twice", quoted_name(name)));
        return true;
      case State::Entry:
        return entry_key(name);
      default:
        return unexpected("a key");
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
        return unexpected("an object");
    }
  }

  bool end_object() override {
    if (state_ == State::Entry) {
      if (!seen_.dtype || !seen_.shape || !seen_.offsets) {
        return refuse(fmt::format("tensor {}: no key \"{}\"", quoted_name(name_),
                                  !seen_.dtype   ? "dtype"
                                  : !seen_.shape ? "shape"
                                                 : "data_offsets"));
      }
    }
    state_ = state_ == State::Top ? State::End : State::Top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::Entry || key_ == "dtype") return unexpected("a list");
    state_ = State::List;
    return true;
  }

  bool end_array() override {
    state_ = State::Entry;
    if (key_ == "shape") return true;
    if (offsets_.size() != 2) {
      return refuse(fmt::format("tensor {}: data_offsets must hold 2 numbers, got {}", quoted_name(name_),
                                offsets_.size()));
    }
    entry_->begin = offsets_[0];
    entry_->end = offsets_[1];
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::List) return unexpected("a number");
    if (key_ == "data_offsets") {
      if (offsets_.size() == 2) {
        return refuse(
            fmt::format("tensor {}: data_offsets must hold 2 numbers, got more", quoted_name(name_)));
      }
      offsets_.push_back(value);
      return true;
    }
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return refuse(fmt::format("tensor {}: size {} in its shape is too large", quoted_name(name_), value));
    }
    if (entry_->shape.size() == kMaxRank) {
      return refuse(fmt::format("tensor {}: its shape has more than {} sizes", quoted_name(name_), kMaxRank));
    }
    entry_->shape.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is no integer");
  }
  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool string(string_t& value) override {
    if (state_ == State::Metadata) {
      header_.metadata.emplace(key_, value);
      return true;
    }
    if (state_ != State::Entry || key_ != "dtype") return unexpected("a string");
    for (const auto& known : kSafetensorsDtypes) {
      if (known.name == value) {
        entry_->dtype = known.dtype;
        return true;
      }
    }
    return refuse(fmt::format("tensor {}: unknown dtype {}", quoted_name(name_), quoted_name(value)));
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return refuse(fmt::format("the header is not JSON (byte {} of it)", position));
  }

 private:
  enum class State { Start, Top, Metadata, Entry, List, End };

  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  bool unexpected(std::string_view what) {
    switch (state_) {
      case State::Start:
        return refuse(fmt::format("the header must be a JSON object, got {}", what));
      case State::Top:
        return refuse(fmt::format("the value of {} must be an object, got {}", quoted_name(name_), what));
      case State::Metadata:
        return refuse(fmt::format("__metadata__ {}: expected a string, got {}", quoted_name(key_), what));
      default:
        return refuse(fmt::format("tensor {}: expected {}, got {}", quoted_name(name_),
                                  key_ == "dtype"   ? "dtype to be a string"
                                  : key_ == "shape" ? "shape to be a list of non-negative integers"
                                                    : "data_offsets to be two non-negative integers",
                                  what));
    }
  }

  bool top_key(const std::string& name) {
    name_ = name;
    in_metadata_ = name == "__metadata__";
    if (in_metadata_) {
      if (has_metadata_) return refuse("__metadata__ comes twice");
      has_metadata_ = true;
      return true;
    }
    const auto [position, fresh] = header_.entries.try_emplace(name);
    if (!fresh) return refuse(fmt::format("tensor {} comes twice", quoted_name(name)));
    entry_ = &position->second;
    return true;
  }

  bool entry_key(const std::string& name) {
    bool* seen = name == "dtype"          ? &seen_.dtype
                 : name == "shape"        ? &seen_.shape
                 : name == "data_offsets" ? &seen_.offsets
                                          : nullptr;
    if (!seen) return refuse(fmt::format("tensor {}: unknown key {}", quoted_name(name_), quoted_name(name)));
    if (*seen)
      return refuse(fmt::format("tensor {}: key {} comes twice", quoted_name(name_), quoted_name(name)));
    *seen = true;
    key_ = name;
    offsets_.clear();
    return true;
  }

  struct Seen {
    bool dtype = false, shape = false, offsets = false;
  };

  SafetensorsHeader& header_;
  std::string reason_;
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
std::optional<std::string> check_ranges(const SafetensorsHeader& header, uint64_t data_size) {
  using NamedEntry = std::pair<const std::string, SafetensorsEntry>;
  std::vector<const NamedEntry*> items;
  for (const auto& item : header.entries) {
    const auto& [name, entry] = item;
    const auto bytes = byte_count(entry);
    if (!bytes) return fmt::format("tensor {}: its shape overflows", quoted_name(name));
    if (entry.begin > entry.end) {
      return fmt::format("tensor {}: data_offsets [{}, {}] end before they begin", quoted_name(name),
                         entry.begin, entry.end);
    }
    if (entry.end - entry.begin != *bytes) {
      return fmt::format("tensor {}: dtype {} and shape {} take {} bytes, data_offsets [{}, {}] hold {}",
                         quoted_name(name), safetensors_dtype(entry.dtype), shape_string(entry.shape), *bytes,
                         entry.begin, entry.end, entry.end - entry.begin);
    }
    if (entry.end > data_size) {
      return fmt::format("tensor {}: its data end at byte {}, but the file holds {} bytes of data",
                         quoted_name(name), entry.end, data_size);
    }
    items.push_back(&item);
  }
  std::sort(items.begin(), items.end(), [](const NamedEntry* a, const NamedEntry* b) {
    return std::tie(a->second.begin, a->second.end) < std::tie(b->second.begin, b->second.end);
  });
  uint64_t covered = 0;
  for (const auto* item : items) {
    if (item->second.begin < covered)
      return fmt::format("tensor {} overlaps another tensor", quoted_name(item->first));
    if (item->second.begin > covered) {
      return fmt::format("a hole of {} bytes before tensor {}", item->second.begin - covered,
                         quoted_name(item->first));
    }
    covered = item->second.end;
  }
  if (covered != data_size)
    return fmt::format("{} trailing bytes after the last tensor", data_size - covered);
  return std::nullopt;
}

}  // namespace

std::string_view safetensors_dtype(at::ScalarType dtype) {
  for (const auto& known : kSafetensorsDtypes) {
    if (known.dtype == dtype) return known.name;
  }
  return {};
}

int safetensors_rank(at::ScalarType dtype) {
  const auto* known = std::find_if(std::begin(kSafetensorsDtypes), std::end(kSafetensorsDtypes),
                                   [&](const DtypeName& candidate) { return candidate.dtype == dtype; });
  return static_cast<int>(known - std::begin(kSafetensorsDtypes));
}

std::optional<std::string> parse_safetensors_header(std::string_view text, uint64_t data_size,
                                                    SafetensorsHeader& header) {
  // Without this check, the parser would skip a byte order mark and stop at a NUL byte, neither of which is
  // JSON.
  if (text.empty() || text.front() != '{') return "the header does not begin with '{'";
  if (text.find('\0') != std::string_view::npos) return "the header holds a NUL byte";
  if (!is_utf8(text)) return "the header is not UTF-8";
  HeaderReader reader(header);
  if (!nlohmann::json::sax_parse(text, &reader)) return reader.reason();
  return check_ranges(header, data_size);
}

}  // namespace attentive
