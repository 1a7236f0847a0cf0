#pragma once

#include <string>
#include <string_view>

namespace attentive {

/// The decimal digits, with a minus sign if need be, of an integer in two's complement, its lowest byte
/// first.
std::string decimal_of(std::string_view bytes);

/// The shortest such bytes of decimal digits with an optional minus sign; empty if the text is none, or if
/// it has more than `max_bytes`.
std::string bytes_of(std::string_view decimal, size_t max_bytes);

}  // namespace attentive
