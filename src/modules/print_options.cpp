#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <attentive/modules/print_options.h>

namespace attentive::detail {

std::string text_of(bool value) {
  return value ? "true" : "false";
}

std::string text_of(int64_t value) {
  return fmt::format("{}", value);
}

std::string text_of(double value) {
  return fmt::format("{}", value);
}

std::string text_of(const ScoreMod& score) {
  return score ? score.name() : "none";
}

std::string text_of(const BlockMask& mask) {
  return mask ? mask.mask().name() : "none";
}

std::string text_of(const std::vector<int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

std::string text_of(const std::vector<OptionText>& options, const std::vector<OptionText>& defaults) {
  std::string text;
  for (size_t n = 0; n < options.size(); ++n) {
    const auto& option = options[n];
    const bool plain = option.nested ? option.text == "{}" : option.text == defaults[n].text;
    if (!plain) text += fmt::format("{}{}={}", text.empty() ? "" : ", ", option.name, option.text);
  }
  return '{' + text + '}';
}

void print_options(std::ostream& stream, const char* name, const std::vector<OptionText>& options) {
  std::string text = fmt::format("attentive::{}(", name);
  for (const auto& option : options)
    text += fmt::format("{}{}={}", &option == options.data() ? "" : ", ", option.name, option.text);
  stream << text << ')';
}

}  // namespace attentive::detail
