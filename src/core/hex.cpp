#include "core/hex.h"

#include <c10/util/Exception.h>

namespace attentive {

std::string to_hex(std::string_view bytes) {
  constexpr const char* digits = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) {
    hex += digits[byte >> 4];
    hex += digits[byte & 15];
  }
  return hex;
}

std::string from_hex(const char* who, std::string_view hex) {
  const auto digit = [&](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    TORCH_CHECK_VALUE(c >= 'a' && c <= 'f', who, ": expected lower-case hexadecimal digits, got \"", hex,
                      "\"");
    return c - 'a' + 10;
  };
  TORCH_CHECK_VALUE(hex.size() % 2 == 0, who, ": expected an even number of hexadecimal digits, got \"", hex,
                    "\"");
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  return bytes;
}

}  // namespace attentive
