#include "base/refusal.h"

#include <nlohmann/json.hpp>

namespace attentive {
namespace {

// Escapes DEL and the C1 control characters: JSON may leave them unescaped, and terminals obey them.
std::string without_controls(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (byte == 0x7F) {
      result += "\\u007f";
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {
      result += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace

std::string quoted_name(std::string_view name) {
  constexpr size_t kLongest = 200;
  const bool whole = name.size() <= kLongest;
  size_t cut = whole ? name.size() : kLongest;
  while (!whole && cut > 0 && (static_cast<unsigned char>(name[cut]) & 0xC0) == 0x80)
    --cut;  // never cut inside a character
  const auto quoted =
      nlohmann::json(name.substr(0, cut)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return without_controls(quoted) + (whole ? "" : "...");
}

}  // namespace attentive
