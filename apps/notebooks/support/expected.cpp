#include "support/expected.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <attentive/parity/compare.h>
#include <attentive/parity/draws.h>

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

}  // namespace notebooks
