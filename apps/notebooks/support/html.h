#pragma once

#include <string>
#include <string_view>

namespace notebooks {

/// Text for HTML, between tags or in a quoted attribute.
std::string escaped(std::string_view text);

/// C++ code for HTML: escaped, its keywords, texts, numbers and comments in spans of the classes k, s, n and c.
std::string code_html(std::string_view code);

/// The address of an SVG picture that holds the picture itself.
std::string data_uri(std::string_view svg);

}  // namespace notebooks
