#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "support/report.h"
#include "support/source.h"

namespace notebooks {
namespace {

constexpr size_t kMostRows = 12;
constexpr size_t kTableWidth = 54;  // two tables fit next to each other
constexpr size_t kLineWidth = 80;

// A table as lines of equal width: the last axis runs across, all others down; a long or wide table is cut.
struct Table {
  std::vector<std::string> lines;
  size_t width = 0;  // columns on the screen
  size_t hidden_rows = 0;
};

Table to_table(const Check& check, const std::vector<std::string>& texts, size_t cell_width) {
  const size_t columns = check.shape.empty() ? 1 : static_cast<size_t>(check.shape.back());
  const size_t rows = texts.size() / columns;
  const size_t shown = std::min(columns, (kTableWidth + 2) / (cell_width + 2));
  Table table;
  table.hidden_rows = rows - std::min(rows, kMostRows);
  table.width = shown * (cell_width + 2) - 2 + (shown < columns ? 2 : 0);
  for (size_t row = 0; row < rows - table.hidden_rows; ++row) {
    std::string line;
    for (size_t column = 0; column < shown; ++column) {
      line += fmt::format("{}{:>{}}", column == 0 ? "" : "  ", texts[row * columns + column], cell_width);
    }
    table.lines.push_back(line + (shown < columns ? " …" : ""));
  }
  return table;
}

size_t widest(const std::vector<std::string>& texts) {
  size_t width = 0;
  for (const auto& text : texts) width = std::max(width, text.size());
  return width;
}

void print_heading(const std::string& document, const std::string& title) {
  fmt::print("\n{0:=<{2}}\n {1}\n{0:=<{2}}\n", "", document + "  " + title, kLineWidth);
}

void print_source(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) fmt::print("{}{}\n", line.empty() ? "" : "    ", line);
}

// Prints an indented paragraph.
void print_remark(const std::string& text) {
  std::istringstream words(text);
  std::string line, word;
  while (words >> word) {
    if (line.size() + word.size() > kLineWidth - 3) {
      fmt::print(" {}\n", line);
      line.clear();
    }
    line += " " + word;
  }
  fmt::print(" {}\n", line);
}

// Prints the C++ numbers next to the expected ones, the largest difference and the verdict.
void print_check(const Check& check, const std::vector<double>& got, const Comparison& comparison) {
  const std::string_view source = source_text(check);
  const std::string verdict = verdict_text(check, comparison);
  const auto [got_texts, expected_texts] = texts_of(check, got);

  if (check.shape.size() < 2) {
    const std::string left = inline_text(check, got_texts), right = inline_text(check, expected_texts);
    const std::string line = fmt::format("  {:<28} C++ {}  {} {}", check.name, left, source, right);
    if (line.size() + verdict.size() < 2 * kTableWidth) {
      fmt::print("{}  {}\n", line, verdict);
      return;
    }
  }
  fmt::print("  {} ({}): {}\n", check.name, shape_text(check), verdict);
  const size_t cell_width = std::max(widest(got_texts), widest(expected_texts));
  const Table left = to_table(check, got_texts, cell_width),
              right = to_table(check, expected_texts, cell_width);
  fmt::print("    {:<{}}   {}\n", "C++", left.width, source);
  for (size_t row = 0; row < left.lines.size(); ++row) {
    fmt::print("    {} | {}\n", left.lines[row], right.lines[row]);
  }
  if (left.hidden_rows > 0) fmt::print("    … {} more rows, compared too\n", left.hidden_rows);
}

void print_value(const std::string& name, const std::vector<int64_t>& shape,
                 const std::vector<double>& numbers) {
  const auto [check, texts] = shown_texts(name, shape, numbers);
  if (shape.size() < 2) {
    const auto line = fmt::format("  {:<28} C++ {}", name, inline_text(check, texts));
    if (line.size() < 2 * kTableWidth) {
      fmt::print("{}\n", line);
      return;
    }
  }
  fmt::print("  {} ({}): {}\n", name, shape_text(check), texts.empty() ? "no numbers" : "shown");
  if (texts.empty()) return;
  const Table table = to_table(check, texts, widest(texts));
  for (const auto& line : table.lines) fmt::print("    {}\n", line);
  if (table.hidden_rows > 0) fmt::print("    … {} more rows\n", table.hidden_rows);
}

// Prints the values of other machines below a check that depends on dropout, and the reason if `explain`.
void print_other_stream(const Check& check, bool explain) {
  if (explain) print_remark(other_stream_remark());
  const auto texts = other_stream_texts(check);
  const std::string_view stream = other_stream_name();
  if (check.shape.size() < 2) {
    fmt::print("    {}: {}\n", stream, inline_text(check, texts));
    return;
  }
  const Table table = to_table(check, texts, widest(texts));
  fmt::print("    {}:\n", stream);
  for (const auto& line : table.lines) fmt::print("    {}\n", line);
}

void print_summary(const std::vector<Tally>& tallies) {
  const auto print_row = [](const std::vector<std::string>& row) {
    fmt::print(" {:<8} {:>4} {:>8} {:>6} {:>6}  {}\n", row[0], row[1], row[2], row[3], row[4], row[5]);
  };
  fmt::print("\n{0:=<{1}}\n", "", kLineWidth);
  print_row(tally_heads());
  for (const auto& tally : tallies) {
    if (tally.empty()) continue;
    print_row(columns_of(tally));
    for (const auto& remark : remarks_of(tally)) fmt::print("   {}\n", remark);
  }
  fmt::print("{0:=<{1}}\n {2}\n", "", kLineWidth, conclusion(tallies));
}

constexpr size_t kTitleWidth = 44;
constexpr const char kLineFormat[] = "{:<7} {:<44} {:>7} {:>9}{}\n";

// Cuts a text to `width` characters, with a mark at the cut.
std::string cut(const std::string& text, size_t width) {
  const auto fitting = fmt::format("{:.{}}", text, width);
  return fitting == text ? text : fmt::format("{:.{}}…", text, width - 1);
}

// Implements --list: titles, and the code if requested.
class ListReport : public Report {
 public:
  explicit ListReport(bool source) : source_(source) {}

  void begin_document(const Document& document) override { print_heading(document.id, document.title); }
  void begin_cell(const CellHeading& cell) override {
    fmt::print("{:<8} {}\n", cell.id, cell.title);
    if (source_) print_source(cell_source(cell.document, cell.id).text());
  }

 private:
  bool source_;
};

// Prints a line for each cell, and below it the checks that differ.
class LineReport : public Report {
 public:
  void begin_document(const Document& document) override {
    print_heading(document.id, document.title);
    fmt::print(kLineFormat, "cell", "title", "numbers", "differ by", "");
  }

  void begin_cell(const CellHeading& cell) override {
    cell_ = cell;
    line_ = {};
  }

  void check(const Check& check, const std::vector<double>& got, const Comparison& comparison) override {
    line_.add(check, got, comparison);
  }

  void value(const std::string& /*name*/, const std::vector<int64_t>& /*shape*/,
             const std::vector<double>& /*numbers*/) override {
    line_.shown = true;
  }

  void end_cell(bool stopped) override {
    line_.stopped = stopped;
    fmt::print(kLineFormat, cell_.id, cut(cell_.title, kTitleWidth),
               line_.numbers > 0 ? fmt::format("{}", line_.numbers) : "", line_.difference(),
               fmt::format("  {}", line_.verdict()));
    for (const auto& [check, got, comparison] : line_.differing) print_check(check, got, comparison);
  }

  void summary(const std::vector<Tally>& tallies) override {
    print_summary(tallies);
    fmt::print(" --full shows every number, --cell N --source one cell and its C++ code.\n");
  }

 private:
  CellHeading cell_ = {};
  CellLine line_;
};

// Prints every number beside the expected one.
class TableReport : public Report {
 public:
  explicit TableReport(bool source) : source_(source) {}

  void begin_document(const Document& document) override { print_heading(document.id, document.title); }

  void begin_cell(const CellHeading& cell) override {
    fmt::print("\n{}  {}\n", cell.id, cell.title);
    if (!cell.note.empty()) print_remark(cell.note);
    if (source_) print_source(cell_source(cell.document, cell.id).text());
  }

  void remark(const std::string& text) override { print_remark(text); }

  void check(const Check& check, const std::vector<double>& got, const Comparison& comparison) override {
    print_check(check, got, comparison);
  }

  void other_stream(const Check& check, bool explain) override { print_other_stream(check, explain); }

  void value(const std::string& name, const std::vector<int64_t>& shape,
             const std::vector<double>& numbers) override {
    print_value(name, shape, numbers);
  }

  void summary(const std::vector<Tally>& tallies) override { print_summary(tallies); }

 private:
  bool source_;
};

}  // namespace

std::unique_ptr<Report> terminal_report(const View& view) {
  if (view.list) return std::make_unique<ListReport>(view.source);
  if (view.tables()) return std::make_unique<TableReport>(view.source);
  return std::make_unique<LineReport>();
}

}  // namespace notebooks
