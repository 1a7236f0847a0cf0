#include "common/flags.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace apps {
namespace {

// Parses a number; nothing if the text is not a number or too large for the type. A leading zero is refused,
// because CLI11 would read 010 as octal.
template <class Number>
std::optional<Number> parse(std::string_view text) {
  const bool octal = text.size() > 1 && text[0] == '0' && std::is_integral_v<Number>;
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (octal || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A check that accepts some texts, and reports for all others what was expected.
template <class Accepts>
CLI::Validator validator(const std::string& description, std::string expected, Accepts accepts) {
  return CLI::Validator(
      [expected = std::move(expected), accepts](std::string& text) {
        return accepts(text) ? std::string() : fmt::format("expected {}, got {}", expected, text);
      },
      description);
}

}  // namespace

CLI::Validator whole_number(int64_t least, int64_t most) {
  const auto range = fmt::format("{} to {}", least, most);
  return validator(range, "a whole number from " + range, [=](const std::string& text) {
    const auto value = parse<int64_t>(text);
    return value && *value >= least && *value <= most;
  });
}

CLI::Validator number(double least, double most, Ends ends) {
  const auto range =
      ends == Ends::WithoutLeast
          ? fmt::format("above {}, at most {}", least, most)
          : fmt::format("from {} to {}{}", least, ends == Ends::WithoutMost ? "below " : "", most);
  return validator(range, "a number " + range, [=](const std::string& text) {
    const auto value = parse<double>(text);
    if (!value || std::isnan(*value)) return false;
    return (ends == Ends::WithoutLeast ? *value > least : *value >= least) &&
           (ends == Ends::WithoutMost ? *value < most : *value <= most);
  });
}

CLI::Validator seed_number() {
  const auto range = fmt::format("0 to {}", std::numeric_limits<uint64_t>::max());
  return validator(range, "a whole number from " + range,
                   [](const std::string& text) { return parse<uint64_t>(text).has_value(); });
}

CLI::Validator true_or_false() {
  return validator("true or false", "true or false", [](const std::string& text) {
    constexpr std::array kWords{"true", "false", "1", "0", "yes", "no", "on", "off"};
    return std::find(kWords.begin(), kWords.end(), text) != kWords.end();
  });
}

CLI::Option* add_threads(CLI::App& app, int& threads) {
  return app.add_option("--threads", threads, "CPU threads; 0: as many as there are cores")
      ->check(whole_number(0, kMostThreads));
}

CLI::Option* add_device(CLI::App& app, std::string& device, const std::string& description) {
  return app.add_option("--device", device, description)
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
}

}  // namespace apps
