#pragma once

// The committed parity cases (tests/parity/README.md) as checks.

#include <string>
#include <vector>

#include <attentive/parity/case.h>

namespace attentive::test {

// Files that match a pattern below tests/parity, sorted.
std::vector<std::string> case_files(const std::string& pattern);

// The tensors of a report that did not pass, a line each; empty if all did.
std::string differences(const CaseReport& report);

// Runs the cases of a pattern on the CPU: each passes, and there are at least so many.
void check_cases(const std::string& pattern, size_t least);

// Runs cases of dropout, each recorded once for either of PyTorch's two CPU streams: those of this machine's
// pass, the others are skipped.
void check_dropout_cases(const std::string& pattern);

}  // namespace attentive::test
