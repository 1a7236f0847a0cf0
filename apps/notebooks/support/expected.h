#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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

enum class Verdict { Equal, Different, OnlyShown, OtherGenerator };

/// The number that used the largest share of its tolerance, or exceeded it.
struct Comparison {
  double difference = 0;
  double largest = 0;  ///< the largest difference of any number
  double allowed = 0;
  size_t place = 0;  ///< row-major position
  Verdict verdict = Verdict::Equal;

  bool compared() const { return verdict == Verdict::Equal || verdict == Verdict::Different; }
};

/// Compares the numbers of a check. NaN equals NaN, and an infinity equals itself, because some tables print
/// them.
Comparison compare_numbers(const Check& check, const std::vector<double>& got);

/// The C++ numbers of a check and the expected ones as texts, with as many digits as are known. The texts are
/// for display only; the comparison uses the numbers.
struct CheckTexts {
  std::vector<std::string> got, expected;
};
CheckTexts texts_of(const Check& check, const std::vector<double>& got);

/// Numbers without expected ones, and their texts: with four decimals, or with five significant digits if
/// four decimals would say little.
struct ShownTexts {
  Check check;  ///< has the name, the shape and the digits
  std::vector<std::string> texts;
};
ShownTexts shown_texts(const std::string& name, const std::vector<int64_t>& shape,
                       const std::vector<double>& numbers);

/// The texts of a check's numbers on machines with the other dropout stream; empty if it has none.
std::vector<std::string> other_stream_texts(const Check& check);
std::string_view other_stream_name();
/// Explains in a sentence or two why there are two streams.
std::string other_stream_remark();

/// A few numbers, such as a shape, as text within a line.
std::string inline_text(const Check& check, const std::vector<std::string>& texts);
/// Returns "printed" or "derived".
std::string_view source_text(const Check& check);
/// The indices of a number given by its row-major position, such as "3,1".
std::string index_text(std::span<const int64_t> shape, size_t place);
/// A shape as text, such as "6,3".
std::string shape_text(const Check& check);
/// The largest difference and the allowed one, or the reason why nothing was compared.
std::string verdict_text(const Check& check, const Comparison& comparison);

}  // namespace notebooks
