#pragma once

#include <string>
#include <string_view>

namespace notebooks {

enum class TokenKind { Comment, Text, Number, Word, Other };

/// A token of C++ code: a comment up to the end of its line, a string or character, a number, a word, or any
/// other single character.
struct CppToken {
  TokenKind kind = TokenKind::Other;
  std::string_view text;
};

/// The first token of `code`, which must not be empty. Block comments and raw strings are not supported.
CppToken first_token(std::string_view code);

/// Whether C++ reserves this word.
bool is_keyword(std::string_view word);

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
