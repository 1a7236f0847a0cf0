#include "selection.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <c10/util/Exception.h>

namespace {

constexpr int64_t kLargest = 100'000;  // limits heads, so that a range stays short

std::optional<int64_t> number_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > kLargest)
    return std::nullopt;
  return number;
}

}  // namespace

std::vector<int64_t> parse_numbers(std::string_view option, std::string_view text) {
  std::vector<int64_t> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    const auto part = text.substr(begin, end - begin);
    const auto dash = part.find('-');
    const auto low = number_of(part.substr(0, dash));
    const auto high = dash == std::string_view::npos ? low : number_of(part.substr(dash + 1));
    TORCH_CHECK_VALUE(low && high && *low <= *high, option,
                      ": expected numbers and ranges such as 0,3-5, got \"", std::string(text), "\"");
    for (int64_t number = *low; number <= *high; ++number) numbers.push_back(number);
    begin = end + 1;
  }
  return numbers;
}

LayerHead parse_layer_head(std::string_view option, std::string_view text) {
  const auto dot = text.rfind('.');
  const auto head = dot == std::string_view::npos ? std::nullopt : number_of(text.substr(dot + 1));
  TORCH_CHECK_VALUE(head && dot > 0, option, ": expected a layer and a head such as blocks.0.attn.3, got \"",
                    std::string(text), "\"");
  return {std::string(text.substr(0, dot)), *head};
}
