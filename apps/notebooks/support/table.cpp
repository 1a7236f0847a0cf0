#include "support/table.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <attentive/parity/draws.h>

#include "support/walkthrough.h"

namespace notebooks {
namespace {

constexpr size_t kMostRows = 12;
constexpr size_t kTableWidth = 54;  // two of them stand side by side
constexpr size_t kTitleWidth = 44;
constexpr const char kLineFormat[] = "{:<7} {:<44} {:>7} {:>9}{}\n";
constexpr size_t kLineWidth = 80;

// All whole: printed without decimals, as shapes and counts are.
bool whole(const std::vector<double>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(),
                     [](double x) { return x == std::floor(x) || std::isnan(x); });
}

// With as many digits as are known; the comparison never sees this text.
std::string to_text(const Check& check, double number, bool decimals) {
  if (std::isnan(number)) return "nan";  // without its sign
  if (number == 0) number = 0;           // likewise
  if (check.significant_digits) return fmt::format("{:.{}e}", number, *check.significant_digits - 1);
  return fmt::format("{:.{}f}", number, decimals ? check.printed_decimals.value_or(6) : 0);
}

std::vector<std::string> to_texts(const Check& check, const std::vector<double>& numbers, bool decimals) {
  std::vector<std::string> texts;
  for (const double number : numbers) texts.push_back(to_text(check, number, decimals));
  return texts;
}

// Four decimals, or five significant digits where those would say little.
void choose_digits(Check& check, const std::vector<double>& numbers) {
  double largest = 0;
  for (const double number : numbers) {
    if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
  }
  const bool decimals = largest < 1e5 && largest >= 1e-2;
  if (largest >= 1e15 || (!decimals && !whole(numbers))) check.significant_digits = 5;
  check.printed_decimals = 4;
}

// Few numbers, such as a shape, for the middle of a line.
std::string inline_text(const Check& check, const std::vector<std::string>& texts) {
  if (check.shape.empty()) return texts.front();
  return fmt::format("({})", fmt::join(texts, ", "));
}

// A table as lines of equal width: the last axis across, all others down, cut where it is long or wide.
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

// Row-major position -> indices, such as "[3,1]".
std::string index_text(const Check& check, size_t place) {
  std::vector<size_t> indices(check.shape.size());
  for (size_t axis = indices.size(); axis-- > 0;) {
    const auto size = static_cast<size_t>(check.shape[axis]);
    indices[axis] = place % size;
    place /= size;
  }
  return fmt::format("[{}]", fmt::join(indices, ","));
}

std::string verdict_text(const Check& check, const Comparison& comparison) {
  switch (comparison.verdict) {
    case Verdict::OnlyShown:
      return "shown, not compared";
    case Verdict::OtherGenerator:
      return "not compared: dropout on a GPU draws other numbers";
    case Verdict::Different:
      return fmt::format("DIFFERS at {} by {:.1e}, allowed {:.1e}", index_text(check, comparison.place),
                         comparison.difference, comparison.allowed);
    case Verdict::Equal:
      break;
  }
  if (comparison.difference == 0) return "equal";
  return fmt::format("difference {:.1e}, allowed {:.1e}: ok", comparison.difference, comparison.allowed);
}

std::string_view verdict_text(const CellLine& line) {
  if (line.stopped) return "STOPPED";
  if (!line.differing.empty()) return "DIFFERS";
  if (line.numbers > 0) return "ok";
  return line.shown ? "shown" : "text";
}

// At most `width` characters, with a mark where some are missing.
std::string cut(const std::string& text, size_t width) {
  const auto fitting = fmt::format("{:.{}}", text, width);
  return fitting == text ? text : fmt::format("{:.{}}…", text, width - 1);
}

}  // namespace

void CellLine::add(const Check& check, const std::vector<double>& got, const Comparison& comparison) {
  if (!comparison.compared()) {
    shown = true;
    return;
  }
  numbers += got.size();
  largest = std::max(largest, comparison.largest);
  if (comparison.verdict == Verdict::Different) differing.push_back({check, got, comparison});
}

void print_heading(const std::string& document, const std::string& title) {
  fmt::print("\n{0:=<{2}}\n {1}\n{0:=<{2}}\n", "", document + "  " + title, kLineWidth);
}

void print_title(const std::string& id, const std::string& title) {
  fmt::print("{:<8} {}\n", id, title);
}

void print_cell(const std::string& id, const std::string& title, const std::string& note) {
  fmt::print("\n{}  {}\n", id, title);
  if (!note.empty()) print_remark(note);
}

void print_columns() {
  fmt::print(kLineFormat, "cell", "title", "numbers", "differ by", "");
}

void print_line(const std::string& id, const std::string& title, const CellLine& line) {
  const bool compared = line.numbers > 0;
  fmt::print(kLineFormat, id, cut(title, kTitleWidth), compared ? fmt::format("{}", line.numbers) : "",
             !compared           ? ""
             : line.largest == 0 ? "0"
                                 : fmt::format("{:.1e}", line.largest),
             fmt::format("  {}", verdict_text(line)));
  for (const auto& [check, got, comparison] : line.differing) print_check(check, got, comparison);
}

void print_source(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) fmt::print("{}{}\n", line.empty() ? "" : "    ", line);
}

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

void print_check(const Check& check, const std::vector<double>& got, const Comparison& comparison) {
  const std::string_view source = check.printed ? "printed" : "derived";
  const std::string verdict = verdict_text(check, comparison);
  const bool decimals = !whole(got) || !whole(check.values);
  const auto ours = to_texts(check, got, decimals), theirs = to_texts(check, check.values, decimals);

  if (check.shape.size() < 2) {
    const std::string left = inline_text(check, ours), right = inline_text(check, theirs);
    const std::string line = fmt::format("  {:<28} C++ {}  {} {}", check.name, left, source, right);
    if (line.size() + verdict.size() < 2 * kTableWidth) {
      fmt::print("{}  {}\n", line, verdict);
      return;
    }
  }
  fmt::print("  {} ({}): {}\n", check.name, fmt::join(check.shape, ","), verdict);
  const size_t cell_width = std::max(widest(ours), widest(theirs));
  const Table left = to_table(check, ours, cell_width), right = to_table(check, theirs, cell_width);
  fmt::print("    {:<{}}   {}\n", "C++", left.width, source);
  for (size_t row = 0; row < left.lines.size(); ++row) {
    fmt::print("    {} | {}\n", left.lines[row], right.lines[row]);
  }
  if (left.hidden_rows > 0) fmt::print("    … {} more rows, compared too\n", left.hidden_rows);
}

void print_value(const std::string& name, const std::vector<int64_t>& shape,
                 const std::vector<double>& numbers) {
  Check check;
  check.name = name;
  check.shape = shape;
  choose_digits(check, numbers);
  const auto texts = to_texts(check, numbers, !whole(numbers));
  if (shape.size() < 2) {
    const auto line = fmt::format("  {:<28} C++ {}", name, inline_text(check, texts));
    if (line.size() < 2 * kTableWidth) {
      fmt::print("{}\n", line);
      return;
    }
  }
  fmt::print("  {} ({}): {}\n", name, fmt::join(shape, ","), texts.empty() ? "no numbers" : "shown");
  if (texts.empty()) return;
  const Table table = to_table(check, texts, widest(texts));
  for (const auto& line : table.lines) fmt::print("    {}\n", line);
  if (table.hidden_rows > 0) fmt::print("    … {} more rows\n", table.hidden_rows);
}

void print_other_stream(const Check& check, bool explain) {
  const bool intel = attentive::dropout_stream_of_this_cpu() == "intel_mkl";
  if (explain) {
    print_remark(
        intel ? "Dropout depends on the machine: on this one PyTorch draws from Intel's MKL. The numbers "
                "above are "
                "Python's on such a machine; the document's, printed below, come from the default stream."
              : "Dropout depends on the machine: this one draws the default stream, as the document's did. "
                "Where "
                "PyTorch draws from Intel's MKL, Python and C++ show the numbers below.");
  }
  const auto texts =
      to_texts(check, *check.other_stream, !whole(check.values) || !whole(*check.other_stream));
  const std::string_view stream = intel ? "default stream" : "Intel MKL stream";
  if (check.shape.size() < 2) {
    fmt::print("    {}: {}\n", stream, inline_text(check, texts));
    return;
  }
  const Table table = to_table(check, texts, widest(texts));
  fmt::print("    {}:\n", stream);
  for (const auto& line : table.lines) fmt::print("    {}\n", line);
}

void print_summary(const std::vector<Tally>& tallies, bool tables) {
  int compared = 0;
  fmt::print("\n{0:=<{1}}\n", "", kLineWidth);
  fmt::print(" {:<8} {:>4} {:>8} {:>6} {:>6}  {}\n", "document", "rows", "compared", "differ", "shown",
             "nearest to what it is allowed");
  bool passed = true;
  for (const auto& tally : tallies) {
    if (tally.cells == 0 && tally.error.empty()) continue;
    fmt::print(
        " {:<8} {:>4} {:>8} {:>6} {:>6}  {}\n", tally.document, tally.cells, tally.compared, tally.differing,
        tally.only_shown,
        tally.closest_at.empty() ? "-" : fmt::format("{:.0f} %, {}", 100 * tally.closest, tally.closest_at));
    for (const auto& id : tally.own) fmt::print("   {} has no expected numbers: shown, not compared\n", id);
    if (!tally.error.empty()) fmt::print("   {}\n", tally.error);
    passed = passed && tally.passed();
    compared += tally.compared;
  }
  fmt::print("{0:=<{1}}\n {2}\n", "", kLineWidth,
             !passed         ? "Some numbers do not agree."
             : compared == 0 ? "No number was compared."
                             : "Every number agrees.");
  if (!tables) {
    fmt::print(" --full shows every number, --cell N --source one cell and its C++ code.\n");
  }
}

}  // namespace notebooks
