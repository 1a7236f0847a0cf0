#include "support/terminal_report.h"

#include <fmt/format.h>

#include "support/cell_line.h"
#include "support/cell_source.h"
#include "support/table.h"

namespace notebooks {
namespace {

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
