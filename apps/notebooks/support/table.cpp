#include "support/table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace notebooks {
namespace {

constexpr size_t kMostRows = 12;
constexpr size_t kMostColumns = 6;

bool integral(const std::vector<double>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(),
                     [](double x) { return x == std::floor(x) && std::abs(x) < 1e15; });
}

// With as many digits as are known; the comparison never sees this text.
std::string to_text(const Check& check, double number) {
  if (check.significant_digits) return fmt::format("{:.{}e}", number, *check.significant_digits - 1);
  if (integral(check.values) && number == std::floor(number) && std::abs(number) < 1e15) {
    return fmt::format("{:.0f}", number);
  }
  if (check.printed_decimals) return fmt::format("{:.{}f}", number, *check.printed_decimals);
  return fmt::format("{:.6f}", number);
}

// A table as lines of equal width: the last axis across, all others down, cut where it is long.
class Lines {
 public:
  Lines(const Check& check, const std::vector<double>& numbers)
      : columns_(check.shape.empty() ? 1 : static_cast<size_t>(check.shape.back())),
        rows_(numbers.size() / columns_) {
    std::vector<std::string> texts;
    for (const double number : numbers) texts.push_back(to_text(check, number));
    size_t width = 0;
    for (const auto& text : texts) width = std::max(width, text.size());

    for (size_t row = 0; row < std::min(rows_, kMostRows); ++row) {
      const auto first = texts.begin() + static_cast<std::ptrdiff_t>(row * columns_);
      const auto last = first + static_cast<std::ptrdiff_t>(std::min(columns_, kMostColumns));
      std::string line;
      for (auto text = first; text != last; ++text) {
        line += fmt::format("{}{:>{}}", text == first ? "" : "  ", *text, width);
      }
      lines_.push_back(line + (columns_ > kMostColumns ? " …" : ""));
    }
  }

  const std::vector<std::string>& lines() const { return lines_; }
  /// Columns on the screen ("…" is one column of three bytes).
  size_t width() const { return lines_.front().size() - (columns_ > kMostColumns ? 2 : 0); }
  size_t hidden_rows() const { return rows_ - lines_.size(); }

 private:
  size_t columns_;
  size_t rows_;
  std::vector<std::string> lines_;
};

std::string verdict_text(double largest, double allowed, Verdict verdict) {
  switch (verdict) {
    case Verdict::OnlyShown:
      return "shown, not compared";
    case Verdict::OtherGenerator:
      return "not compared: dropout on a GPU draws other numbers";
    case Verdict::Equal:
      break;
    case Verdict::Different:
      return fmt::format("difference {:.1e}, allowed {:.1e}: DIFFERS", largest, allowed);
  }
  return largest == 0 ? "equal" : fmt::format("difference {:.1e}, allowed {:.1e}: ok", largest, allowed);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ","));
}

}  // namespace

void print_heading(const std::string& document, const std::string& title) {
  fmt::print("\n{0:=<96}\n {1}  {2}\n{0:=<96}\n", "", document, title);
}

void print_cell(const Entry& entry) {
  fmt::print("\n{}  {}\n", entry.id, entry.title);
  if (!entry.note.empty()) fmt::print("  {}\n", entry.note);
}

void print_check(const Check& check, const std::vector<double>& got, double largest, double allowed,
                 Verdict verdict) {
  const std::string_view source = check.printed ? "printed" : "derived";
  const std::string text = verdict_text(largest, allowed, verdict);
  const Lines ours(check, got), theirs(check, check.values);

  if (ours.lines().size() == 1 && ours.width() + theirs.width() < 76) {
    fmt::print("  {:<28} C++ {}  {} {}  {}\n", check.name, ours.lines()[0], source, theirs.lines()[0], text);
  } else {
    fmt::print("  {} {}: {}\n", check.name, shape_text(check.shape), text);
    fmt::print("    {:<{}}   {}\n", "C++", ours.width(), source);
    for (size_t row = 0; row < ours.lines().size(); ++row) {
      fmt::print("    {} | {}\n", ours.lines()[row], theirs.lines()[row]);
    }
    if (ours.hidden_rows() > 0) fmt::print("    … {} more rows, compared too\n", ours.hidden_rows());
  }

  if (!check.other_stream) return;
  fmt::print("    Dropout depends on the machine. This one draws the {} stream: the numbers above are\n",
             draws_intel_mkl_stream() ? "Intel + MKL" : "default");
  if (!draws_intel_mkl_stream()) {
    fmt::print("    {}. With PyTorch's MKL on an Intel processor they would be\n",
               check.printed ? "the notebook's" : "those of most machines");
  } else {
    fmt::print("    PyTorch's for that stream, not printed in the notebook. {} shows\n",
               check.printed ? "The notebook, made on another machine," : "The default stream");
  }
  for (const auto& line : Lines(check, *check.other_stream).lines()) fmt::print("    {}\n", line);
}

void print_summary(const std::vector<Tally>& tallies) {
  fmt::print("\n{0:=<96}\n", "");
  fmt::print(" {:<10} {:>5} {:>9} {:>8} {:>11}   {}\n", "document", "rows", "compared", "differ",
             "only shown", "nearest to its tolerance");
  bool passed = true;
  for (const auto& tally : tallies) {
    if (tally.cells == 0 && tally.error.empty()) continue;
    fmt::print(
        " {:<10} {:>5} {:>9} {:>8} {:>11}   {}\n", tally.document, tally.cells, tally.compared,
        tally.differing, tally.only_shown,
        tally.closest_at.empty() ? "-" : fmt::format("{:.0f} % ({})", 100 * tally.closest, tally.closest_at));
    if (!tally.error.empty()) fmt::print("   stopped: {}\n", tally.error);
    passed = passed && tally.passed();
  }
  fmt::print("{:=<96}\n {}\n", "", passed ? "Every number agrees." : "Some numbers do not agree.");
}

}  // namespace notebooks
