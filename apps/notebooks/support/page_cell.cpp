#include "support/page_cell.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "support/cell_source.h"
#include "support/html.h"
#include "support/number_text.h"
#include "support/page_table.h"

namespace notebooks {
namespace {

constexpr size_t kNumbersOfLine = 4;  // larger checks get a table of their own

bool fits_a_line(const Check& check, size_t numbers) {
  return check.shape.size() < 2 && numbers <= kNumbersOfLine;
}

std::string verdict_html(std::string_view text, bool agrees, bool differs) {
  const std::string_view name = differs ? "differs" : agrees ? "agrees" : "neutral";
  const std::string_view mark = differs ? "✗" : agrees ? "✓" : "○";
  return fmt::format("<span class=\"verdict {}\"><span aria-hidden=\"true\">{}</span> {}</span>", name, mark,
                     escaped(text));
}

std::string verdict_html(const Check& check, const Comparison& comparison) {
  return verdict_html(verdict_text(check, comparison), comparison.verdict == Verdict::Equal,
                      comparison.verdict == Verdict::Different);
}

std::string named(const Check& check) {
  return fmt::format("<code>{}</code>", escaped(check.name));
}

// One or two tables with a caption.
std::string figure(const Check& check, std::string_view verdict, std::string_view tables) {
  return fmt::format(
      "<figure class=\"check\">\n<figcaption>{} <span class=\"shape\">({})</span> {}</figcaption>\n"
      "<div class=\"beside\">\n{}</div>\n</figure>\n",
      named(check), shape_text(check), verdict, tables);
}

}  // namespace

void PageCell::source() {
  const auto source = cell_source(heading_.document, heading_.id);
  const auto prose = source.prose();
  if (!prose.empty()) prose_ = fmt::format("<p class=\"concept\">{}</p>\n", escaped(prose));
  code_ =
      fmt::format("<pre tabindex=\"0\" aria-label=\"C++ code of {}\" role=\"group\"><code>{}</code></pre>\n",
                  escaped(heading_.id), code_html(source.code));
}

void PageCell::add_block(const std::string& html) {
  const auto lines = std::exchange(lines_, {});
  if (!lines.empty()) {
    results_ +=
        lines_html("numbers of " + heading_.id, {"value", "C++", "expected", "source", "result"}, lines);
  }
  results_ += html;
}

void PageCell::remark(const std::string& text) {
  add_block(fmt::format("<p class=\"remark\">{}</p>\n", escaped(text)));
}

void PageCell::check(const Check& check, const std::vector<double>& got, const Comparison& comparison) {
  line_.add(check, got, comparison);
  const auto [got_texts, expected_texts] = texts_of(check, got);
  const auto verdict = verdict_html(check, comparison);
  const std::string source(source_text(check));
  if (fits_a_line(check, got.size())) {
    lines_.push_back(
        {named(check), inline_text(check, got_texts), inline_text(check, expected_texts), source, verdict});
    return;
  }
  const auto marked =
      comparison.verdict == Verdict::Different ? std::optional(comparison.place) : std::nullopt;
  add_block(figure(
      check, verdict,
      table_html(check, got_texts, "C++", marked) + table_html(check, expected_texts, source, marked)));
}

void PageCell::other_stream(const Check& check, bool explain) {
  if (explain) remark(other_stream_remark());
  const auto texts = other_stream_texts(check);
  const std::string stream(other_stream_name());
  if (fits_a_line(check, texts.size())) {
    lines_.push_back({fmt::format("{}, {}", named(check), stream), "", inline_text(check, texts), "derived",
                      verdict_html("shown, not compared", false, false)});
    return;
  }
  add_block(
      figure(check, verdict_html("shown, not compared", false, false), table_html(check, texts, stream)));
}

void PageCell::value(const std::string& name, const std::vector<int64_t>& shape,
                     const std::vector<double>& numbers) {
  line_.shown = true;
  const auto [check, texts] = shown_texts(name, shape, numbers);
  const auto verdict = verdict_html(texts.empty() ? "no numbers" : "shown", false, false);
  if (fits_a_line(check, texts.size())) {
    lines_.push_back({named(check), inline_text(check, texts), "", "", verdict});
    return;
  }
  add_block(figure(check, verdict, texts.empty() ? "" : table_html(check, texts, "C++")));
}

void PageCell::picture(const Picture& picture) {
  std::string images;
  for (const auto& [svg, description] : draw(picture)) {
    images += fmt::format("<img src=\"{}\" alt=\"{}\">\n", data_uri(svg), escaped(description));
  }
  add_block(fmt::format("<figure class=\"pictures\">\n{}</figure>\n", images));
}

void PageCell::end(bool stopped) {
  line_.stopped = stopped;
  add_block("");
}

std::string PageCell::verdict() const {
  return verdict_html(line_.verdict(), line_.numbers > 0, failed());
}

std::string PageCell::html() const {
  std::string counted;
  if (line_.numbers > 0) {
    counted = fmt::format(" <span class=\"counted\">{} numbers, differing by {} at most</span>",
                          line_.numbers, line_.difference());
  }
  const auto note =
      heading_.note.empty() ? "" : fmt::format("<p class=\"note\">{}</p>\n", escaped(heading_.note));
  return fmt::format(
      "<section class=\"cell\" id=\"{0}\" aria-labelledby=\"title-{0}\">\n"
      "<h2 id=\"title-{0}\"><a href=\"#{0}\">{0}</a> {1}</h2>\n<p "
      "class=\"outcome\">{2}{3}</p>\n{4}{5}{6}{7}</section>\n",
      escaped(heading_.id), escaped(heading_.title), verdict(), counted, prose_, note, code_, results_);
}

}  // namespace notebooks
