#pragma once

// Reads a struct with ATTENTIVE_OPTIONS from the options of a case, in the format of option_json.h.

#include <string_view>
#include <vector>

#include "files/option_json.h"
#include "parity/case_arguments.h"

namespace attentive {

/// The names of all options. They are valid until the program ends.
template <ListsOptions Options>
std::vector<std::string_view> option_names(const Options& options) {
  static const auto object = option_object(options);
  std::vector<std::string_view> names;
  for (const auto& item : object.template get_ref<const nlohmann::json::object_t&>())
    names.push_back(item.first);
  return names;
}

/// Reads the options of a case; those that are absent or null keep their values. Throws c10::ValueError,
/// prefixed with `caller`, that names an option of another type.
template <ListsOptions Options>
Options read_options(const CaseArguments& arguments, Options options, const char* caller) {
  auto object = option_object(options);
  const auto given = nlohmann::json::parse(arguments.json());
  for (const auto& item : given.items()) {
    if (!item.value().is_null()) object[item.key()] = item.value();
  }
  each_option(options, OptionReader(caller, object));
  return options;
}

}  // namespace attentive
