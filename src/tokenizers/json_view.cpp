#include "tokenizers/json_view.h"

#include <algorithm>

#include "base/refusal.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

constexpr int kDeepest = 64;
constexpr size_t kLongestShown = 60;

// Limits the nesting of a document, so that code that reads it by recursion cannot exhaust the stack.
void check_depth(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepest) refuse("expected JSON nested at most {} deep", kDeepest);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
}

std::string shown(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array of " + std::to_string(value.size());
  auto text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > kLongestShown) text = text.substr(0, kLongestShown) + "...";
  return text;
}

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  check_depth(text);
  auto document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) refuse("expected JSON in UTF-8");
  return document;
}

void JsonView::only(std::initializer_list<std::string_view> known) const {
  if (!value_.is_object()) expected("an object");
  for (const auto& [key, member] : value_.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      unsupported("the field " + shown(nlohmann::json(key)));
    }
  }
}

JsonView JsonView::at(std::string_view key) const {
  if (!value_.is_object()) expected("an object");
  const auto found = value_.find(key);
  if (found == value_.end()) expected("a field \"" + std::string(key) + '"');
  return JsonView(*found, path_.empty() ? std::string(key) : path_ + '.' + std::string(key));
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (!has(key) || value_.find(key)->is_null()) return std::nullopt;
  return at(key);
}

std::vector<JsonView> JsonView::items() const {
  if (!value_.is_array()) expected("an array");
  std::vector<JsonView> all;
  all.reserve(value_.size());
  for (size_t i = 0; i < value_.size(); ++i) all.push_back(item(i));
  return all;
}

const std::string& JsonView::string() const {
  if (!value_.is_string()) expected("a string");
  return value_.get_ref<const std::string&>();
}

const std::string& JsonView::character() const {
  const bool one = value_.is_string() && std::ranges::count_if(string(), begins_character) == 1;
  if (!one) expected("one character");
  return string();
}

bool JsonView::boolean() const {
  if (!value_.is_boolean()) expected("true or false");
  return value_.get<bool>();
}

int64_t JsonView::integer(int64_t least, int64_t most) const {
  const bool fits = value_.is_number_integer() &&
                    !(value_.is_number_unsigned() && value_.get<uint64_t>() > static_cast<uint64_t>(most)) &&
                    value_.get<int64_t>() >= least && value_.get<int64_t>() <= most;
  if (!fits) expected(fmt::format("an integer from {} to {}", least, most));
  return value_.get<int64_t>();
}

void JsonView::expected(std::string_view what) const {
  refuse("{}: expected {}, got {}", path_.empty() ? "the document" : path_, what, shown(value_));
}

void JsonView::unsupported(std::string_view what) const {
  refuse("{}: {} is not supported", path_.empty() ? "the document" : path_, what);
}

}  // namespace attentive::tokenizers
