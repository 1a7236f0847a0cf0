#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace notebooks {

/// The numbers that a document prints for one value, and how exactly they are known.
struct Check {
  std::string name;
  std::vector<int64_t> shape;  ///< empty: one number
  std::vector<double> values;  ///< row by row, for this machine's dropout stream where there are two
  /// Only where dropout decides: what a machine with the other stream shows.
  std::optional<std::vector<double>> other_stream;
  bool printed = false;  ///< stands in the document; otherwise computed with PyTorch from the same seeds
  bool compare = true;   ///< false: a stale output, shown only

  /// How far from `want` a number may lie.
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

/// The data file: every number the documents print, by document.
class Expected {
 public:
  /// `text` is the JSON of expected.json. Throws std::runtime_error if it is something else.
  static Expected parse(const std::string& text);
  /// The file at `path`; without one, the copy that was compiled in.
  static Expected load(const std::string& path);

  const std::vector<Entry>& entries() const { return entries_; }
  /// nullptr for a row that the data file does not have.
  const Entry* find(std::string_view id) const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace notebooks
