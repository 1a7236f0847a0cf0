#pragma once

#include <cstddef>
#include <string_view>

namespace attentive {

// The name of an enumerator, given the names in the order of declaration; "unknown" beyond the last one.
template <class Enum, size_t N>
std::string_view enum_name(Enum value, const std::string_view (&names)[N]) {
  const auto index = static_cast<size_t>(value);
  return index < N ? names[index] : "unknown";
}

}  // namespace attentive
