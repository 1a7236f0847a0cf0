#pragma once

#include <string>
#include <string_view>

namespace notebooks {

/// The function of the row `id` in the C++ text of its document, with the comment above it and without the
/// indentation of its class. Throws std::runtime_error if the text names no function for the row.
std::string cell_source(std::string_view text, std::string_view id);

}  // namespace notebooks
