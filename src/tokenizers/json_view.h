#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace attentive::tokenizers {

/// Parses JSON text. Throws Refusal if it is not JSON, or is nested deeper than 64 levels.
nlohmann::json parse_json(std::string_view text);

/// A value of a JSON document together with its place, such as `model.merges[12]`. Every error is a Refusal
/// that names the place, the expected value and the actual one. The document must outlive its views.
class JsonView {
 public:
  explicit JsonView(const nlohmann::json& value, std::string path = "")
      : value_(value), path_(std::move(path)) {}

  const nlohmann::json& raw() const { return value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_.is_null(); }

  /// Throws Refusal unless the value is an object whose members are all among `known`, so that no member is
  /// ignored.
  void only(std::initializer_list<std::string_view> known) const;
  bool has(std::string_view key) const { return value_.is_object() && value_.contains(key); }
  JsonView at(std::string_view key) const;
  /// The member, or std::nullopt if it is absent or null.
  std::optional<JsonView> find(std::string_view key) const;
  JsonView item(size_t index) const { return JsonView(value_[index], place(index)); }

  std::vector<JsonView> items() const;
  const std::string& string() const;
  /// The value, which must be a string of one character.
  const std::string& character() const;
  bool boolean() const;
  int64_t integer(int64_t least = 0, int64_t most = std::numeric_limits<int32_t>::max()) const;
  /// The string of the object's member "type".
  const std::string& type() const { return at("type").string(); }

  /// Throws Refusal such as "model.merges[12]: expected two tokens, got 7".
  [[noreturn]] void expected(std::string_view what) const;
  /// Throws Refusal such as "normalizer: Precompiled is not supported".
  [[noreturn]] void unsupported(std::string_view what) const;

 private:
  std::string place(size_t index) const { return path_ + '[' + std::to_string(index) + ']'; }

  const nlohmann::json& value_;
  std::string path_;
};

}  // namespace attentive::tokenizers
