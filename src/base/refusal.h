#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace attentive {

/// Why a file is refused. Code that reads part of a file throws a Refusal; the public function that was
/// called catches it and throws its own error: its name and the path, followed by this reason.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Arguments>
[[noreturn]] void refuse(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw Refusal(fmt::format(format, std::forward<Arguments>(arguments)...));
}

/// A name from a file, in quotes and escaped as in JSON. A long name is cut, so that a message stays
/// readable.
std::string quoted_name(std::string_view name);

}  // namespace attentive
