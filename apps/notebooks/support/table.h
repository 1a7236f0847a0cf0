#pragma once

#include <string>
#include <vector>

#include "support/expected.h"

namespace notebooks {

struct Tally;

enum class Verdict { Equal, Different, OnlyShown, OtherGenerator };

/// The number that used the largest part of what it was allowed, or broke it.
struct Comparison {
  double difference = 0;
  double largest = 0;  ///< difference of any number
  double allowed = 0;
  size_t place = 0;  ///< counted row by row
  Verdict verdict = Verdict::Equal;

  bool compared() const { return verdict == Verdict::Equal || verdict == Verdict::Different; }
};

/// What a cell without tables shows: one line, and below it the checks that differ, in full.
struct CellLine {
  struct Differing {
    Check check;
    std::vector<double> got;
    Comparison comparison;
  };

  size_t numbers = 0;  ///< that were compared
  double largest = 0;  ///< difference of any of them
  bool shown = false;  ///< values were shown, not compared
  bool stopped = false;
  std::vector<Differing> differing;

  void add(const Check& check, const std::vector<double>& got, const Comparison& comparison);
};

void print_heading(const std::string& document, const std::string& title);
/// A line of --list.
void print_title(const std::string& id, const std::string& title);
void print_cell(const std::string& id, const std::string& title, const std::string& note);
/// The heads of the columns of print_line().
void print_columns();
/// A cell in one line, and below it the checks that differ.
void print_line(const std::string& id, const std::string& title, const CellLine& line);
/// The C++ code of a cell.
void print_source(const std::string& text);
/// An indented paragraph.
void print_remark(const std::string& text);
/// The C++ numbers and the expected ones side by side, the largest difference and the verdict.
void print_check(const Check& check, const std::vector<double>& got, const Comparison& comparison);
/// Numbers beside which nothing stands.
void print_value(const std::string& name, const std::vector<int64_t>& shape,
                 const std::vector<double>& numbers);
/// Below a check that dropout has touched: what other machines show. `explain`: say why they do.
void print_other_stream(const Check& check, bool explain);
/// One line per document. `tables`: the numbers of the cells are above, so no option to see them is named.
void print_summary(const std::vector<Tally>& tallies, bool tables);

}  // namespace notebooks
