#pragma once

#include <algorithm>
#include <concepts>
#include <string_view>
#include <type_traits>

#include <attentive/core/options.h>

/// Lists the members of an options struct once: printing, JSON and tests all read this list.
///
///   struct ExampleOptions {
///     TORCH_ARG(int64_t, d_in) = 1;
///     TORCH_ARG(bool, bias) = true;
///     ATTENTIVE_OPTIONS(d_in_, bias_);  // in the order of declaration
///   };
///
/// This defines `each_option(visit)`, const and non-const, which calls `visit(name, value)` for every member.
/// The trailing underscore of a member is not part of its name.
#define ATTENTIVE_OPTIONS(...)                                            \
 public:                                                                  \
  template <class Visit>                                                  \
  void each_option(Visit&& visit) {                                       \
    ::attentive::detail::visit_members(#__VA_ARGS__, visit, __VA_ARGS__); \
  }                                                                       \
  template <class Visit>                                                  \
  void each_option(Visit&& visit) const {                                 \
    ::attentive::detail::visit_members(#__VA_ARGS__, visit, __VA_ARGS__); \
  }                                                                       \
  static_assert(true) /* takes the semicolon */

namespace attentive {

namespace detail {

// Removes the first name from "d_in_, d_out_" and returns it without its trailing underscore.
constexpr std::string_view next_name(std::string_view& names) {
  const auto comma = names.find(',');
  auto name = names.substr(0, comma);
  names.remove_prefix(std::min(names.find_first_not_of(", ", comma), names.size()));
  if (name.ends_with('_')) name.remove_suffix(1);
  return name;
}

template <class Visit, class... Values>
void visit_members(std::string_view names, Visit& visit, Values&... values) {
  (visit(next_name(names), values), ...);
}

}  // namespace detail

/// Calls `visit(name, value)` for every option, in the order of declaration.
///
///   each_option(options, [](std::string_view name, const auto& value) { … });
template <class Options, class Visit>
requires requires(Options& options, Visit& visit) {
  options.each_option(visit);
}
void each_option(Options& options, Visit&& visit) {
  options.each_option(visit);
}

template <class Options, class Visit>
requires std::same_as<std::remove_const_t<Options>, Window>
void each_option(Options& options, Visit&& visit) {
  auto& [left, right] = options;
  detail::visit_members("left, right", visit, left, right);
}

template <class Options, class Visit>
requires std::same_as<std::remove_const_t<Options>, AttentionOptions>
void each_option(Options& options, Visit&& visit) {
  auto& [scale, causal, window, align, softcap, plus_one, dropout_p, stream, backend] = options;  // all
  detail::visit_members(
      "scale, causal, window, align, softcap, softmax_plus_one, dropout_p, dropout_stream, backend", visit,
      scale, causal, window, align, softcap, plus_one, dropout_p, stream, backend);
}

namespace detail {

struct IgnoreOption {
  template <class Value>
  void operator()(std::string_view, Value&) const {}
};

}  // namespace detail

/// A struct whose options `each_option` lists.
template <class Options>
concept ListsOptions = requires(Options& options) {
  each_option(options, detail::IgnoreOption());
};

}  // namespace attentive
