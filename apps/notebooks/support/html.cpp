#include "support/html.h"

#include <cctype>

#include <fmt/format.h>

#include "support/cpp_token.h"

namespace notebooks {
namespace {

std::string_view class_of(const CppToken& token) {
  switch (token.kind) {
    case TokenKind::Comment:
      return "c";
    case TokenKind::Text:
      return "s";
    case TokenKind::Number:
      return "n";
    case TokenKind::Word:
      return is_keyword(token.text) ? "k" : "";
    case TokenKind::Other:
      break;
  }
  return "";
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string code_html(std::string_view code) {
  std::string html;
  while (!code.empty()) {
    const auto token = first_token(code);
    const auto name = class_of(token);
    html += name.empty() ? escaped(token.text)
                         : fmt::format("<span class=\"{}\">{}</span>", name, escaped(token.text));
    code.remove_prefix(token.text.size());
  }
  return html;
}

std::string data_uri(std::string_view svg) {
  std::string uri = "data:image/svg+xml,";
  for (const char c : svg) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain =
        std::isalnum(byte) != 0 || std::string_view("-_.,:;=()/").find(c) != std::string_view::npos;
    uri += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return uri;
}

}  // namespace notebooks
