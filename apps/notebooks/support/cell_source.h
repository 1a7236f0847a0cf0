#pragma once

#include <string>
#include <string_view>

namespace notebooks {

/// The code of `nb.cell("001-25", "…", [&] { … })` for the row `id` in the C++ text of its document: what
/// stands between the braces, without its indentation, below the comment that stands above the call. Throws
/// std::runtime_error if the text has no such call.
std::string cell_source(std::string_view text, std::string_view id);

}  // namespace notebooks
