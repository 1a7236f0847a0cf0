#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/expected.h"

namespace notebooks {

/// Escapes a text for HTML, between tags or in a quoted attribute.
std::string escaped(std::string_view text);

/// Converts C++ code to HTML: escaped, with keywords, strings, numbers and comments in spans of the classes
/// k, s, n and c.
std::string code_html(std::string_view code);

/// A data URI that contains an SVG picture.
std::string data_uri(std::string_view svg);

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
