#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace attentive {

/// Why a file is refused. What reads a part of a file throws it; the public function that was called catches
/// it and throws its own error, with its name and the path before the reason.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Arguments>
[[noreturn]] void refuse(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw Refusal(fmt::format(format, std::forward<Arguments>(arguments)...));
}

/// A name out of a file, in quotes and escaped as in JSON; a long one is cut, so that a message stays
/// readable.
std::string quoted_name(std::string_view name);

}  // namespace attentive
