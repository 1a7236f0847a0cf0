#pragma once

#include <string>
#include <vector>

#include "support/expected.h"
#include "support/walkthrough.h"

namespace notebooks {

enum class Verdict { Equal, Different, OnlyShown, OtherGenerator };

void print_heading(const std::string& document, const std::string& title);
void print_cell(const Entry& entry);
/// The C++ numbers and the expected ones side by side, the largest difference and the verdict.
void print_check(const Check& check, const std::vector<double>& got, double largest, double allowed,
                 Verdict verdict);
/// One line per document.
void print_summary(const std::vector<Tally>& tallies);

}  // namespace notebooks
