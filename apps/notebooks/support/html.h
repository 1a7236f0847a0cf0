#pragma once

#include <string>
#include <string_view>

namespace notebooks {

/// Escapes a text for HTML, between tags or in a quoted attribute.
std::string escaped(std::string_view text);

/// Converts C++ code to HTML: escaped, with keywords, strings, numbers and comments in spans of the classes
/// k, s, n and c.
std::string code_html(std::string_view code);

/// A data URI that contains an SVG picture.
std::string data_uri(std::string_view svg);

}  // namespace notebooks
