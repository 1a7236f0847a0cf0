#pragma once

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

}  // namespace notebooks
