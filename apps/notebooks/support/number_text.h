#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/comparison.h"
#include "support/expected.h"

namespace notebooks {

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
