#include "files/json_value.h"

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/refusal.h"
#include "base/strings.h"
#include "files/mapped_file.h"

namespace attentive {
namespace {

constexpr uint64_t kLongestJson = 100'000'000;  // bytes; the limit of a safetensors header
constexpr int kMaxDepth = 16;

// Watches the parser's events, because a parsed object no longer shows that a key occurred twice.
nlohmann::json parse_strictly(const std::string& text, std::string_view what) {
  if (!is_utf8(text)) refuse("the {} is not UTF-8", what);
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kMaxDepth) refuse("the {} nests too deep", what);
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get<std::string>()).second) {
      refuse("the {} holds {} twice", what, quoted_name(value.get<std::string>()));
    }
    return true;
  };
  auto json = nlohmann::json::parse(text, watch, /*allow_exceptions=*/false);
  if (json.is_discarded()) refuse("the {} is not JSON", what);
  return json;
}

FileValue to_value(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return value.get<double>();
  if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max()) {
    return FileValue::Integer{std::to_string(value.get<uint64_t>())};
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_array()) {
    FileValue::List list;
    for (const auto& item : value) list.items.push_back(to_value(item));
    return list;
  }
  if (value.is_object()) {
    FileValue::Dict dict;
    for (const auto& [key, item] : value.items()) dict.items.emplace_back(key, to_value(item));
    return dict;
  }
  return {};
}

nlohmann::json to_json(const FileValue& value) {
  if (value.is<FileValue::None>()) return nullptr;
  if (value.is<bool>()) return value.as<bool>();
  if (value.is<int64_t>()) return value.as<int64_t>();
  if (value.is<std::string>()) return value.as<std::string>();
  if (value.is<double>()) {
    if (!std::isfinite(value.as<double>())) refuse("JSON has no number {}", value.as<double>());
    return value.as<double>();
  }
  if (value.is<FileValue::Integer>()) {
    return nlohmann::json::parse(value.as<FileValue::Integer>().digits);
  }
  if (value.is<FileValue::List>()) {
    auto list = nlohmann::json::array();
    for (const auto& item : value.as<FileValue::List>().items) list.push_back(to_json(item));
    return list;
  }
  if (!value.is<FileValue::Dict>()) refuse("JSON has no {}", value.kind());
  auto dict = nlohmann::json::object();
  for (const auto& [key, item] : value.as<FileValue::Dict>().items) {
    if (!key.is<std::string>()) refuse("JSON has no {} as a key", key.kind());
    dict[key.as<std::string>()] = to_json(item);
  }
  return dict;
}

}  // namespace

std::string read_json_text(const std::filesystem::path& path, std::string_view what) {
  const ByteSource source(path);
  if (source.size() > kLongestJson) {
    refuse("the {} has {} bytes, more than the limit of {}", what, source.size(), kLongestJson);
  }
  std::string text(source.size(), '\0');
  source.read(0, text.data(), text.size());
  return text;
}

std::vector<std::string> keys_in_order(const std::string& text, std::string_view field) {
  std::vector<std::string> keys;
  bool inside = false;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    if (event != nlohmann::json::parse_event_t::key) return true;
    if (depth == 1) inside = value.get<std::string>() == field;
    if (depth == 2 && inside) keys.push_back(value.get<std::string>());
    return true;
  };
  [[maybe_unused]] const auto all = nlohmann::json::parse(text, watch, /*allow_exceptions=*/false);
  return keys;
}

FileValue read_json(const std::filesystem::path& path, std::string_view what) {
  return parse_json(read_json_text(path, what), what);
}

FileValue parse_json(const std::string& text, std::string_view what) {
  return to_value(parse_strictly(text, what));
}

std::string json_text(const FileValue& value) {
  try {
    return to_json(value).dump(2) + '\n';
  } catch (const nlohmann::json::exception&) {
    refuse("a string is not UTF-8, or an integer no number");
  }
}

}  // namespace attentive
