#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/comparison.h"
#include "support/expected.h"

namespace notebooks {

/// The C++ numbers of a check and the expected ones as they are shown, with as many digits as are known. The
/// comparison never sees these texts.
struct CheckTexts {
  std::vector<std::string> ours, theirs;
};
CheckTexts texts_of(const Check& check, const std::vector<double>& got);

/// Numbers beside which nothing stands, and how they are shown: with four decimals, or with five significant
/// digits where those would say little.
struct ShownTexts {
  Check check;  ///< its name, its shape and its digits
  std::vector<std::string> texts;
};
ShownTexts shown_texts(const std::string& name, const std::vector<int64_t>& shape,
                       const std::vector<double>& numbers);

/// What machines with the other dropout stream show for a check that has such numbers.
std::vector<std::string> other_stream_texts(const Check& check);
std::string_view other_stream_name();
/// Why there are two streams, in a sentence or two.
std::string other_stream_remark();

/// Few numbers, such as a shape, for the middle of a line.
std::string inline_text(const Check& check, const std::vector<std::string>& texts);
/// "printed" or "derived".
std::string_view source_text(const Check& check);
/// The indices of a number that is counted row by row, such as "3,1".
std::string index_text(std::span<const int64_t> shape, size_t place);
/// A shape, such as "6,3".
std::string shape_text(const Check& check);
/// The largest difference and what is allowed, or why nothing was compared.
std::string verdict_text(const Check& check, const Comparison& comparison);

}  // namespace notebooks
