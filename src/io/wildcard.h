#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attentive {

/// Whether a text fits a pattern, in which `*` stands for any run of characters.
bool matches(std::string_view pattern, std::string_view text);
bool matches_any(const std::vector<std::string>& patterns, std::string_view text);

}  // namespace attentive
