#pragma once

#include <string>
#include <vector>

#include "support/comparison.h"
#include "support/tally.h"

namespace notebooks {

// Parts of what a terminal shows.

void print_heading(const std::string& document, const std::string& title);
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
/// One line per document.
void print_summary(const std::vector<Tally>& tallies);

}  // namespace notebooks
