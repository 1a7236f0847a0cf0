#pragma once

#include <string>
#include <vector>

#include "support/comparison.h"
#include "support/tally.h"

namespace notebooks {

// The parts of the terminal's output.

void print_heading(const std::string& document, const std::string& title);
/// Prints the C++ code of a cell.
void print_source(const std::string& text);
/// Prints an indented paragraph.
void print_remark(const std::string& text);
/// Prints the C++ numbers next to the expected ones, the largest difference and the verdict.
void print_check(const Check& check, const std::vector<double>& got, const Comparison& comparison);
/// Prints numbers without expected ones.
void print_value(const std::string& name, const std::vector<int64_t>& shape,
                 const std::vector<double>& numbers);
/// Prints the values of other machines below a check that depends on dropout. `explain`: give the reason,
/// too.
void print_other_stream(const Check& check, bool explain);
/// Prints one line per document.
void print_summary(const std::vector<Tally>& tallies);

}  // namespace notebooks
