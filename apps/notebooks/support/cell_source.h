#pragma once

#include <string>
#include <string_view>

namespace notebooks {

/// The source of one cell.
struct CellSource {
  std::string comment;  ///< the lines of comment above the call
  std::string code;     ///< the text between the braces, without its indentation

  std::string text() const { return comment + code; }
  /// The comment as a paragraph.
  std::string prose() const;
};

/// Finds the source of `nb.cell("001-25", "…", [&] { … })` for the row `id` in the C++ text of its document.
/// Throws std::runtime_error if the text has no such call.
CellSource cell_source(std::string_view text, std::string_view id);

}  // namespace notebooks
