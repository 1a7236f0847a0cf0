#include "support/number_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <attentive/parity/draws.h>

namespace notebooks {
namespace {

// Whether all numbers are whole; these are shown without decimals, as shapes and counts are.
bool whole(const std::vector<double>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(),
                     [](double x) { return x == std::floor(x) || std::isnan(x); });
}

std::string to_text(const Check& check, double number, bool decimals) {
  if (std::isnan(number)) return "nan";  // without its sign
  if (number == 0) number = 0;           // drops the sign of -0
  if (check.significant_digits) return fmt::format("{:.{}e}", number, *check.significant_digits - 1);
  return fmt::format("{:.{}f}", number, decimals ? check.printed_decimals.value_or(6) : 0);
}

std::vector<std::string> to_texts(const Check& check, const std::vector<double>& numbers, bool decimals) {
  std::vector<std::string> texts;
  for (const double number : numbers) texts.push_back(to_text(check, number, decimals));
  return texts;
}

void choose_digits(Check& check, const std::vector<double>& numbers) {
  double largest = 0;
  for (const double number : numbers) {
    if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
  }
  const bool decimals = largest < 1e5 && largest >= 1e-2;
  if (largest >= 1e15 || (!decimals && !whole(numbers))) check.significant_digits = 5;
  check.printed_decimals = 4;
}

bool draws_from_mkl() {
  return attentive::dropout_stream_of_this_cpu() == "intel_mkl";
}

}  // namespace

CheckTexts texts_of(const Check& check, const std::vector<double>& got) {
  const bool decimals = !whole(got) || !whole(check.values);
  return {to_texts(check, got, decimals), to_texts(check, check.values, decimals)};
}

ShownTexts shown_texts(const std::string& name, const std::vector<int64_t>& shape,
                       const std::vector<double>& numbers) {
  ShownTexts shown;
  shown.check.name = name;
  shown.check.shape = shape;
  choose_digits(shown.check, numbers);
  shown.texts = to_texts(shown.check, numbers, !whole(numbers));
  return shown;
}

std::vector<std::string> other_stream_texts(const Check& check) {
  return to_texts(check, *check.other_stream, !whole(check.values) || !whole(*check.other_stream));
}

std::string_view other_stream_name() {
  return draws_from_mkl() ? "default stream" : "Intel MKL stream";
}

std::string other_stream_remark() {
  if (draws_from_mkl()) {
    return "Dropout depends on the machine: on this one PyTorch draws from Intel's MKL. The numbers above "
           "are "
           "Python's on such a machine; the document's, printed below, come from the default stream.";
  }
  return "Dropout depends on the machine: this one draws the default stream, as the document's did. Where "
         "PyTorch draws from Intel's MKL, Python and C++ show the numbers below.";
}

std::string inline_text(const Check& check, const std::vector<std::string>& texts) {
  if (check.shape.empty()) return texts.front();
  return fmt::format("({})", fmt::join(texts, ", "));
}

std::string_view source_text(const Check& check) {
  return check.printed ? "printed" : "derived";
}

std::string shape_text(const Check& check) {
  return fmt::format("{}", fmt::join(check.shape, ","));
}

std::string index_text(std::span<const int64_t> shape, size_t place) {
  std::vector<size_t> indices(shape.size());
  for (size_t axis = indices.size(); axis-- > 0;) {
    const auto size = static_cast<size_t>(shape[axis]);
    indices[axis] = place % size;
    place /= size;
  }
  return fmt::format("{}", fmt::join(indices, ","));
}

std::string verdict_text(const Check& check, const Comparison& comparison) {
  switch (comparison.verdict) {
    case Verdict::OnlyShown:
      return "shown, not compared";
    case Verdict::OtherGenerator:
      return "not compared: dropout on a GPU draws other numbers";
    case Verdict::Different:
      return fmt::format("DIFFERS at [{}] by {:.1e}, allowed {:.1e}",
                         index_text(check.shape, comparison.place), comparison.difference,
                         comparison.allowed);
    case Verdict::Equal:
      break;
  }
  if (comparison.difference == 0) return "equal";
  return fmt::format("difference {:.1e}, allowed {:.1e}: ok", comparison.difference, comparison.allowed);
}

}  // namespace notebooks
