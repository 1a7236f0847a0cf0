#pragma once

// Converts options to and from one flat JSON object. Enums are written by name, lists as arrays, and an
// absent option as null. The members of a nested option `rotary` are written as `rotary_base` and so on, or
// as a nested object if the option may be absent.

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <attentive/core/option_list.h>

namespace attentive {

template <class Value>
inline constexpr bool is_optional = false;
template <class Value>
inline constexpr bool is_optional<std::optional<Value>> = true;
template <class Value>
inline constexpr bool is_list = false;
template <class Value>
inline constexpr bool is_list<std::vector<Value>> = true;

class OptionWriter {
 public:
  explicit OptionWriter(nlohmann::json& object, std::string prefix = {})
      : object_(object), prefix_(std::move(prefix)) {}

  template <class Value>
  void operator()(std::string_view name, const Value& value) const {
    const auto key = prefix_ + std::string(name);
    if constexpr (ListsOptions<const Value>) {
      each_option(value, OptionWriter(object_, key + '_'));
    } else if constexpr (std::is_enum_v<Value>) {
      object_[key] = to_string(value);
    } else if constexpr (is_optional<Value>) {
      write(object_[key], value);
    } else {
      object_[key] = value;
    }
  }

 private:
  template <class Value>
  static void write(nlohmann::json& target, const std::optional<Value>& value) {
    if (!value) return;  // leaves the newly created member null
    if constexpr (ListsOptions<const Value>) {
      each_option(*value, OptionWriter(target));
    } else {
      target = *value;
    }
  }

  nlohmann::json& object_;
  std::string prefix_;
};

/// Throws c10::ValueError, prefixed with `caller`, that names a member which is missing or does not fit.
class OptionReader {
 public:
  OptionReader(const char* caller, const nlohmann::json& object, std::string prefix = {})
      : caller_(caller), object_(object), prefix_(std::move(prefix)) {}

  template <class Value>
  void operator()(std::string_view name, Value& value) const {
    const auto key = prefix_ + std::string(name);
    if constexpr (ListsOptions<Value>) {
      each_option(value, OptionReader(caller_, object_, key + '_'));
    } else if constexpr (std::is_enum_v<Value>) {
      value = choice<Value>(key);
    } else if constexpr (is_optional<Value>) {
      read(key, value);
    } else if constexpr (is_list<Value>) {
      value.clear();
      for (const auto& item : member(key, "a list", &nlohmann::json::is_array)) {
        nlohmann::json one;
        one[key] = item;
        OptionReader(caller_, one)(key, value.emplace_back());
      }
    } else if constexpr (std::is_same_v<Value, bool>) {
      value = member(key, "true or false", &nlohmann::json::is_boolean).template get<bool>();
    } else if constexpr (std::is_floating_point_v<Value>) {
      value = member(key, "a number", &nlohmann::json::is_number).template get<Value>();
    } else if constexpr (std::is_unsigned_v<Value>) {
      value = member(key, "an integer >= 0", &nlohmann::json::is_number_unsigned).template get<Value>();
    } else {
      static_assert(std::is_integral_v<Value>, "an option that JSON does not express");
      value = member(key, "an integer", &nlohmann::json::is_number_integer).template get<Value>();
    }
  }

 private:
  template <class Value>
  void read(const std::string& key, std::optional<Value>& value) const {
    const auto found = object_.find(key);
    value.reset();
    if (found != object_.end() && found->is_null()) return;
    if constexpr (ListsOptions<Value>) {
      auto object = option_object(value.emplace(0));  // earlier versions did not write every member
      object.update(member(key, "an object or null", &nlohmann::json::is_object));
      each_option(*value, OptionReader(caller_, object));
    } else {
      OptionReader(caller_, object_)(key, value.emplace());
    }
  }

  const nlohmann::json& member(const std::string& key, const char* kind,
                               bool (nlohmann::json::*fits)() const noexcept) const {
    const auto found = object_.find(key);
    TORCH_CHECK_VALUE(found != object_.end(), caller_, ": expected a member \"", key, '"');
    TORCH_CHECK_VALUE(((*found).*fits)(), caller_, ": expected \"", key, "\" to be ", kind, ", got ",
                      found->dump());
    return *found;
  }

  /// Finds an enumerator by name: enumerators count from 0, and `to_string` returns "unknown" behind the last
  /// one.
  template <class Enum>
  Enum choice(const std::string& key) const {
    const auto text = member(key, "a string", &nlohmann::json::is_string).template get<std::string>();
    for (int n = 0; to_string(static_cast<Enum>(n)) != "unknown"; ++n) {
      if (text == to_string(static_cast<Enum>(n))) return static_cast<Enum>(n);
    }
    TORCH_CHECK_VALUE(false, caller_, ": expected a known \"", key, "\", got \"", text, '"');
  }

  const char* caller_;
  const nlohmann::json& object_;
  std::string prefix_;
};

/// Writes all options as a JSON object.
template <ListsOptions Options>
nlohmann::json option_object(const Options& options) {
  nlohmann::json object;
  each_option(options, OptionWriter(object));
  return object;
}

/// Parses a text that must hold a JSON object.
inline nlohmann::json parse_option_object(const char* caller, const std::string& text) {
  auto object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  TORCH_CHECK_VALUE(object.is_object(), caller, ": expected a JSON object");
  return object;
}

}  // namespace attentive
