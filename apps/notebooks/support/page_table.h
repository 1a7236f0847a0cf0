#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/expected.h"

namespace notebooks {

/// A box that scrolls, also by the keyboard, if its content is wider than the page.
std::string scrolling(std::string_view label, std::string_view html);

/// An HTML table of numbers: the last axis runs across, all others down, with the indices as headings of rows
/// and columns. A very long or wide table is cut. `marked` is the position of a number to highlight.
std::string table_html(const Check& check, const std::vector<std::string>& texts, std::string_view caption,
                       std::optional<size_t> marked = std::nullopt);

/// A table with headings and with rows whose cells are HTML already. The first cell of a row is its heading.
std::string lines_html(std::string_view name, const std::vector<std::string>& heads,
                       const std::vector<std::vector<std::string>>& rows);

}  // namespace notebooks
