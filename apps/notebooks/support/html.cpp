#include "support/html.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "support/source.h"

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

constexpr size_t kMostPageRows = 64, kMostColumns = 32;

// The numbers of a check as rows along the last axis.
struct Grid {
  const Check& check;
  size_t columns, rows, shown_columns, shown_rows, matrix_rows;

  Grid(const Check& c, size_t numbers)
      : check(c),
        columns(c.shape.empty() ? 1 : static_cast<size_t>(c.shape.back())),
        rows(numbers / columns),
        shown_columns(std::min(columns, kMostColumns)),
        shown_rows(std::min(rows, kMostPageRows)),
        matrix_rows(c.shape.size() < 2 ? rows : static_cast<size_t>(c.shape[c.shape.size() - 2])) {}

  bool has_row_heads() const { return check.shape.size() >= 2; }

  // "0,1,5": the indices of a row in all axes but the last.
  std::string row_head(size_t row) const {
    return index_text(std::span(check.shape).first(check.shape.size() - 1), row);
  }
};

std::string head_html(const Grid& grid) {
  std::string html = grid.has_row_heads() ? "<td></td>" : "";
  for (size_t column = 0; column < grid.shown_columns; ++column) {
    html += fmt::format("<th scope=\"col\">{}</th>", column);
  }
  return fmt::format("<thead><tr>{}</tr></thead>\n", html);
}

std::string row_html(const Grid& grid, const std::vector<std::string>& texts, size_t row,
                     std::optional<size_t> marked) {
  const bool begins_matrix = row > 0 && row % grid.matrix_rows == 0;
  std::string html = begins_matrix ? "<tr class=\"next\">" : "<tr>";
  if (grid.has_row_heads()) html += fmt::format("<th scope=\"row\">{}</th>", grid.row_head(row));
  for (size_t column = 0; column < grid.shown_columns; ++column) {
    const size_t place = row * grid.columns + column;
    const auto text = escaped(texts[place]);
    html +=
        place == marked ? fmt::format("<td><mark>{}</mark></td>", text) : fmt::format("<td>{}</td>", text);
  }
  return html + "</tr>\n";
}

std::string rest_html(const Grid& grid) {
  std::string html;
  if (grid.shown_rows < grid.rows)
    html += fmt::format("<p class=\"rest\">… {} more rows</p>\n", grid.rows - grid.shown_rows);
  if (grid.shown_columns < grid.columns) {
    html += fmt::format("<p class=\"rest\">… {} more columns</p>\n", grid.columns - grid.shown_columns);
  }
  return html;
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

std::string scrolling(std::string_view label, std::string_view html) {
  return fmt::format("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{}\">\n{}</div>\n",
                     escaped(label), html);
}

std::string table_html(const Check& check, const std::vector<std::string>& texts, std::string_view caption,
                       std::optional<size_t> marked) {
  const Grid grid(check, texts.size());
  std::string html = fmt::format("<table class=\"numbers\"><caption>{}</caption>\n", escaped(caption));
  html += head_html(grid) + "<tbody>\n";
  for (size_t row = 0; row < grid.shown_rows; ++row) html += row_html(grid, texts, row, marked);
  return scrolling(fmt::format("{}: {}", check.name, caption), html + "</tbody></table>\n" + rest_html(grid));
}

std::string lines_html(std::string_view name, const std::vector<std::string>& heads,
                       const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<table class=\"lines\">\n<thead><tr>";
  for (const auto& head : heads) html += fmt::format("<th scope=\"col\">{}</th>", escaped(head));
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& row : rows) {
    html += fmt::format("<tr><th scope=\"row\">{}</th>", row.front());
    for (size_t column = 1; column < row.size(); ++column) html += fmt::format("<td>{}</td>", row[column]);
    html += "</tr>\n";
  }
  return scrolling(name, html + "</tbody></table>\n");
}

}  // namespace notebooks
