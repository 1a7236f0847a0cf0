#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/expected.h"

namespace notebooks {

/// A box that scrolls where its content is wider than the page, also by the keyboard.
std::string scrolling(std::string_view label, std::string_view html);

/// Numbers as a table of HTML: the last axis across, all others down, with the indices as heads of the rows
/// and columns; cut where it is very long or wide. `marked` is a number to point at.
std::string table_html(const Check& check, const std::vector<std::string>& texts, std::string_view caption,
                       std::optional<size_t> marked = std::nullopt);

/// A table of lines: heads, and rows whose cells are HTML already. The first cell of a row is its head.
std::string lines_html(std::string_view name, const std::vector<std::string>& heads,
                       const std::vector<std::vector<std::string>>& rows);

}  // namespace notebooks
