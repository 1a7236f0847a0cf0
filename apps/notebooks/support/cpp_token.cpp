#include "support/cpp_token.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace notebooks {
namespace {

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

size_t end_of_text(std::string_view code) {
  size_t at = 1;
  while (at < code.size() && code[at] != code[0]) at += code[at] == '\\' ? 2 : 1;
  return std::min(at + 1, code.size());
}

// Numbers may have separators, a fraction and an exponent: 10'000, 6., 1e-5.
size_t end_of_number(std::string_view code) {
  size_t at = 1;
  for (; at < code.size(); ++at) {
    const bool sign_of_exponent = (code[at] == '-' || code[at] == '+') && std::tolower(code[at - 1]) == 'e';
    if (!in_word(code[at]) && code[at] != '.' && code[at] != '\'' && !sign_of_exponent) break;
  }
  return at;
}

size_t end_of_word(std::string_view code) {
  return static_cast<size_t>(std::find_if_not(code.begin(), code.end(), in_word) - code.begin());
}

}  // namespace

CppToken first_token(std::string_view code) {
  const char c = code.front();
  const auto token = [&](TokenKind kind, size_t size) { return CppToken{kind, code.substr(0, size)}; };
  if (code.starts_with("//")) return token(TokenKind::Comment, std::min(code.find('\n'), code.size()));
  if (c == '"' || c == '\'') return token(TokenKind::Text, end_of_text(code));
  if (is_digit(c) || (c == '.' && code.size() > 1 && is_digit(code[1]))) {
    return token(TokenKind::Number, end_of_number(code));
  }
  if (in_word(c)) return token(TokenKind::Word, end_of_word(code));
  return token(TokenKind::Other, 1);
}

bool is_keyword(std::string_view word) {
  constexpr std::array<std::string_view, 30> keywords = {
      "auto",   "bool",      "break",    "case",   "char",   "class",  "const",  "constexpr",
      "double", "else",      "enum",     "false",  "float",  "for",    "if",     "int",
      "long",   "namespace", "nullptr",  "return", "static", "struct", "switch", "template",
      "true",   "typename",  "unsigned", "using",  "void",   "while"};
  return std::find(keywords.begin(), keywords.end(), word) != keywords.end();
}

}  // namespace notebooks
