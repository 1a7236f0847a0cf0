#include "support/expected.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <attentive/parity/compare.h>

namespace notebooks {

extern const char* const kExpectedJson;  // generated from expected.json

namespace {

using nlohmann::json;

// JSON has no infinities, so the file has the strings "-inf" and "nan".
double number(const json& value) {
  if (value.is_number()) return value.get<double>();
  const auto text = value.get<std::string>();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  throw std::runtime_error(fmt::format("\"{}\" is not a number", text));
}

std::vector<double> numbers(const json& values) {
  std::vector<double> result;
  for (const auto& value : values) result.push_back(number(value));
  return result;
}

Check read_check(const json& object) {
  Check check;
  object.at("name").get_to(check.name);
  object.at("shape").get_to(check.shape);
  const auto& values = object.at("values");
  if (values.is_object()) {
    const bool intel = attentive::dropout_stream_of_this_cpu() == "intel_mkl";
    check.values = numbers(values.at(intel ? "intel_mkl" : "default"));
    check.other_stream = numbers(values.at(intel ? "default" : "intel_mkl"));
  } else {
    check.values = numbers(values);
  }
  if (object.contains("printed_decimals")) check.printed_decimals = object["printed_decimals"].get<int>();
  if (object.contains("significant_digits"))
    check.significant_digits = object["significant_digits"].get<int>();
  check.tolerance = object.value("tolerance", 0.0);
  check.printed = object.at("source") == "printed";
  check.compare = object.value("compare", true);

  size_t count = 1;
  for (const auto size : check.shape) count *= static_cast<size_t>(size);
  if (count != check.values.size()) {
    throw std::runtime_error(
        fmt::format("\"{}\" has {} values for its shape of {}", check.name, check.values.size(), count));
  }
  return check;
}

Entry read_entry(const json& object) {
  Entry entry;
  object.at("id").get_to(entry.id);
  entry.note = object.value("note", "");
  entry.labels = object.value("labels", std::vector<std::string>());
  entry.mask = object.value("mask", std::vector<bool>());
  for (const auto& check : object.at("checks")) {
    try {
      entry.checks.push_back(read_check(check));
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("{}: {}", entry.id, error.what()));
    }
  }
  return entry;
}

double difference(double got, double want) {
  if (got == want || (std::isnan(got) && std::isnan(want))) return 0;
  const double distance = std::abs(got - want);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

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

double Check::allowed(double want) const {
  if (printed_decimals) return attentive::printed_tolerance(*printed_decimals).atol;
  if (significant_digits) return 6 * std::pow(10.0, -*significant_digits) * std::abs(want);
  return tolerance;
}

const Check& Entry::check(std::string_view name) const {
  for (const auto& check : checks) {
    if (check.name == name) return check;
  }
  throw std::runtime_error(fmt::format("the expected numbers of {} have no \"{}\"", id, name));
}

Expected Expected::parse(const std::string& text) {
  Expected expected;
  try {
    const json data = json::parse(text);
    for (const auto& [document, entries] : data.items()) {
      if (document == "about") continue;
      for (const auto& entry : entries) expected.entries_.push_back(read_entry(entry));
    }
  } catch (const json::exception& error) {
    throw std::runtime_error(error.what());
  }
  return expected;
}

Expected Expected::load(const std::string& path) {
  if (path.empty()) return parse(kExpectedJson);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(fmt::format("cannot read {}", path));
  std::ostringstream text;
  text << file.rdbuf();
  try {
    return parse(text.str());
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
  }
}

const Entry* Expected::find(std::string_view id) const {
  const auto found = std::ranges::find(entries_, id, &Entry::id);
  return found == entries_.end() ? nullptr : &*found;
}

Comparison compare_numbers(const Check& check, const std::vector<double>& got) {
  Comparison result;
  double closest = -1;
  for (size_t place = 0; place < got.size(); ++place) {
    const double distance = difference(got[place], check.values[place]);
    const double allowed = check.allowed(check.values[place]);
    result.largest = std::max(result.largest, distance);
    const double used = distance == 0 ? 0 : distance / allowed;  // infinite if nothing is allowed
    if (used > closest) {
      closest = used;
      result = {distance, result.largest, allowed, place,
                distance <= allowed ? Verdict::Equal : Verdict::Different};
    }
  }
  return result;
}

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
