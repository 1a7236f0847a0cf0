#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include <torch/enum.h>

#include <attentive/core/option_list.h>
#include <attentive/functional/attention.h>
#include <attentive/score/score_callbacks.h>

/// Modules print all their options by name, in the order of declaration. Nested options follow in braces,
/// without those that have their default values. A score or mask function is printed by its name.
///
///   attentive::CausalAttention(d_in=3, d_out=2, context_length=6, dropout=0.1, qkv_bias=false,
///                              attention={causal=bottom-right})
namespace attentive::detail {

struct OptionText {
  std::string_view name;
  std::string text;
  bool nested;  ///< printed in braces
};

std::string text_of(bool value);
std::string text_of(int64_t value);
std::string text_of(double value);
std::string text_of(const ScoreMod& score);
std::string text_of(const BlockMask& mask);
std::string text_of(const std::vector<int64_t>& values);
/// Returns "{name=text, ...}" for the options whose text differs from that in `defaults`.
std::string text_of(const std::vector<OptionText>& options, const std::vector<OptionText>& defaults);
void print_options(std::ostream& stream, const char* name, const std::vector<OptionText>& options);

template <ListsOptions Options>
std::vector<OptionText> option_texts(const Options& options);

/// Default options, with 0 for the sizes that the constructor requires.
template <class Options>
Options unset() {
  if constexpr (std::is_default_constructible_v<Options>) {
    return {};
  } else if constexpr (std::is_constructible_v<Options, int>) {
    return Options(0);
  } else if constexpr (std::is_constructible_v<Options, int, int>) {
    return Options(0, 0);
  } else {
    return Options(0, 0, 0);
  }
}

template <ListsOptions Options>
std::string text_of(const Options& options) {
  return text_of(option_texts(options), option_texts(unset<Options>()));
}

template <class Enum>
requires requires(Enum value) {
  to_string(value);
}
std::string text_of(const Enum& value) {
  return std::string(to_string(value));
}

template <class Result, class... Args>
std::string text_of(const std::function<Result(Args...)>& function) {
  return function ? "function" : "none";
}

/// PyTorch's own enumerations are variants of empty structs; ours may also hold a function. A choice between
/// the options of several modules is printed with the name of the module, or "none".
template <class... Choices>
std::string text_of(const std::variant<Choices...>& value) {
  return std::visit(
      [](const auto& choice) {
        using Choice = std::remove_cvref_t<decltype(choice)>;
        if constexpr (std::is_same_v<Choice, std::monostate>) {
          return std::string("none");
        } else if constexpr (requires { Choice::kModule; }) {
          return Choice::kModule + text_of(choice);
        } else if constexpr (std::is_empty_v<Choice>) {
          return torch::enumtype::get_enum_name(std::variant<Choice>(choice));
        } else {
          return text_of(choice);
        }
      },
      value);
}

template <class Value>
std::string text_of(const std::optional<Value>& value) {
  return value ? text_of(*value) : "none";
}

template <ListsOptions Options>
std::vector<OptionText> option_texts(const Options& options) {
  std::vector<OptionText> texts;
  each_option(options, [&]<class Value>(std::string_view name, const Value& value) {
    texts.push_back({name, text_of(value), ListsOptions<const Value>});
  });
  return texts;
}

}  // namespace attentive::detail
