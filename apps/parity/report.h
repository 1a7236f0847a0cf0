#pragma once

#include <string>
#include <vector>

#include <attentive/parity/case.h>

/// The result of one case, or of a file that cannot be read: a report, or the reason why there is none.
struct Outcome {
  std::string path;
  attentive::CaseReport report = {};
  std::string error = {};

  const char* status() const;  // "passed", "different", "skipped" or "unusable"
};

/// Formats the table of one case.
std::string to_text(const Outcome& outcome);

/// Counts outcomes: "3 cases: 2 passed, 1 different, 0 skipped, 0 unusable".
std::string summary(const std::vector<Outcome>& outcomes);

/// Writes all outcomes as one JSON document; NaN and infinities, which JSON lacks, become the strings "nan"
/// and "inf".
std::string to_json(const std::vector<Outcome>& outcomes);
