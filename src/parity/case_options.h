#pragma once

// A struct with ATTENTIVE_OPTIONS as the options of a case, by the same names.

#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include <attentive/core/option_list.h>

#include "parity/case_arguments.h"

namespace attentive {

/// The names of all options. They live as long as the program.
template <ListsOptions Options>
std::vector<std::string_view> option_names(const Options& options) {
  std::vector<std::string_view> names;
  each_option(options, [&](std::string_view name, const auto&) { names.push_back(name); });
  return names;
}

/// The enumerator of a name; they count from 0, and `to_string` knows where they end.
template <class Enum>
Enum read_choice(const CaseArguments& arguments, std::string_view name, Enum otherwise) {
  std::vector<std::string_view> known;
  for (int n = 0; to_string(static_cast<Enum>(n)) != "unknown"; ++n)
    known.push_back(to_string(static_cast<Enum>(n)));
  const auto chosen = arguments.choice(name, to_string(otherwise), known);
  size_t n = 0;
  while (known[n] != chosen) ++n;
  return static_cast<Enum>(n);
}

/// The options of a case; absent ones keep their values. Throws CaseError that names an option of another
/// type.
template <ListsOptions Options>
Options read_options(const CaseArguments& arguments, Options options) {
  each_option(options, [&]<class Value>(std::string_view name, Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      value = read_choice(arguments, name, value);
    } else if constexpr (std::is_same_v<Value, bool>) {
      value = arguments.boolean(name, value);
    } else if constexpr (std::is_floating_point_v<Value>) {
      value = arguments.number(name, value);
    } else if constexpr (std::is_same_v<Value, std::optional<int64_t>>) {
      value = arguments.optional_integer(name);
    } else {
      static_assert(std::is_same_v<Value, int64_t>, "an option that a case does not express");
      value = arguments.integer(name, value);
    }
  });
  return options;
}

}  // namespace attentive
