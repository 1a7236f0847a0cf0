#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace notebooks {

/// The expected numbers of one value, and how exactly they are known.
struct Check {
  std::string name;
  std::vector<int64_t> shape;  ///< empty: a single number
  std::vector<double> values;  ///< row by row; for this machine's dropout stream if there are two
  /// The values on a machine with the other dropout stream; only set if they depend on dropout.
  std::optional<std::vector<double>> other_stream;
  bool printed = false;  ///< printed in the document; otherwise computed with PyTorch from the same seeds
  bool compare = true;   ///< false: a stale output, which is shown only

  /// The allowed distance of a number from `want`.
  double allowed(double want) const;

  std::optional<int> printed_decimals;
  std::optional<int> significant_digits;
  double tolerance = 0;
};

/// One cell or worked example of a document.
struct Entry {
  std::string id;  ///< document and row, such as "001-25"
  std::string note;
  std::vector<std::string> labels;  ///< names of the rows
  std::vector<bool> mask;
  std::vector<Check> checks;

  const Check& check(std::string_view name) const;
};

/// The data file: all numbers that the documents print, by document.
class Expected {
 public:
  /// Parses the JSON of expected.json. Throws std::runtime_error for any other text.
  static Expected parse(const std::string& text);
  /// Loads the file at `path`; if the path is empty, the copy that was compiled in.
  static Expected load(const std::string& path);

  const std::vector<Entry>& entries() const { return entries_; }
  /// Returns nullptr for a row that is not in the data file.
  const Entry* find(std::string_view id) const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace notebooks
