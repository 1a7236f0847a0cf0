#pragma once

// The committed parity cases (tests/parity/README.md) as checks.

#include <string>
#include <vector>

#include <attentive/parity/case.h>

namespace attentive::test {

/// A copy of the contents of one committed case, `FILE` or `FILE#case`.
SafetensorsFile case_contents(const std::string& place);

/// The committed cases whose bundle and name match a pattern, such as "encoders#vit-*", sorted.
std::vector<Case> committed_cases(const std::string& pattern);

/// Describes the tensors of a report that did not pass, one line each; empty if all passed.
std::string differences(const CaseReport& report);

/// Runs the cases of a pattern on the CPU and checks that each passes and that there are at least `least` of
/// them.
void check_cases(const std::string& pattern, size_t least);

/// Runs cases of dropout. Each is recorded for both of PyTorch's CPU streams; those of this machine's stream
/// must pass, the others are skipped.
void check_dropout_cases(const std::string& pattern);

}  // namespace attentive::test
