#pragma once

#include <string_view>

namespace notebooks {

enum class TokenKind { Comment, Text, Number, Word, Other };

/// A piece of C++ code: a comment up to its line's end, a string or a character, a number, a word, or one
/// character of anything else.
struct CppToken {
  TokenKind kind = TokenKind::Other;
  std::string_view text;
};

/// The first token of `code`, which must not be empty. Block comments and raw strings are unknown.
CppToken first_token(std::string_view code);

/// True for a word that C++ reserves.
bool is_keyword(std::string_view word);

}  // namespace notebooks
