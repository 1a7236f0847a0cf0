#include "parity/case_arguments.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace attentive {

struct CaseArguments::Values {
  nlohmann::json json;
};

CaseArguments::CaseArguments(std::string case_name, std::string what, const std::string& json)
    : case_name_(std::move(case_name)), what_(std::move(what)), values_(std::make_unique<Values>()) {
  std::set<std::string> seen;
  std::string repeated;  // a repeated key, of which the parser would silently keep the last value
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, const nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!seen.insert(key).second) repeated = key;
    }
    return true;
  };
  values_->json = nlohmann::json::parse(json, watch, /*allow_exceptions=*/false);
  if (!values_->json.is_object()) {
    fail_case(case_name_, fmt::format("the {}s are not a JSON object: {}", what_, json.substr(0, 200)));
  }
  if (!repeated.empty()) fail_case(case_name_, fmt::format("{} {} comes twice", what_, repeated));
}

CaseArguments::~CaseArguments() = default;
CaseArguments::CaseArguments(CaseArguments&&) noexcept = default;

std::vector<std::string> CaseArguments::names() const {
  std::vector<std::string> result;
  for (const auto& item : values_->json.items()) result.push_back(item.key());
  return result;
}

bool CaseArguments::has(std::string_view name) const {
  const auto found = values_->json.find(name);
  return found != values_->json.end() && !found->is_null();
}

std::string CaseArguments::json() const {
  return values_->json.dump();
}

void CaseArguments::wrong_type(std::string_view name, std::string_view expected) const {
  const auto& value = values_->json.at(std::string(name));
  // Only names a structured value: printing it would recurse as deep as it nests.
  fail_case(case_name_,
            fmt::format("expected {} {} to be {}, got {}", what_, name, expected,
                        value.is_structured() ? "a JSON " + std::string(value.type_name()) : value.dump()));
}

void CaseArguments::missing(std::string_view name) const {
  fail_case(case_name_, fmt::format("missing {} {}", what_, name));
}

std::optional<int64_t> CaseArguments::optional_integer(std::string_view name) const {
  if (!has(name)) return std::nullopt;
  const auto& value = values_->json.at(std::string(name));
  if (!value.is_number_integer()) wrong_type(name, "an integer");
  return value.get<int64_t>();
}

std::optional<double> CaseArguments::optional_number(std::string_view name) const {
  if (!has(name)) return std::nullopt;
  const auto& value = values_->json.at(std::string(name));
  if (!value.is_number()) wrong_type(name, "a number");
  return value.get<double>();
}

int64_t CaseArguments::integer(std::string_view name) const {
  const auto value = optional_integer(name);
  if (!value) missing(name);
  return *value;
}

int64_t CaseArguments::integer(std::string_view name, int64_t otherwise) const {
  return optional_integer(name).value_or(otherwise);
}

double CaseArguments::number(std::string_view name) const {
  const auto value = optional_number(name);
  if (!value) missing(name);
  return *value;
}

double CaseArguments::number(std::string_view name, double otherwise) const {
  return optional_number(name).value_or(otherwise);
}

bool CaseArguments::boolean(std::string_view name, bool otherwise) const {
  if (!has(name)) return otherwise;
  const auto& value = values_->json.at(std::string(name));
  if (!value.is_boolean()) wrong_type(name, "true or false");
  return value.get<bool>();
}

std::string CaseArguments::choice(std::string_view name, std::string_view otherwise,
                                  const std::vector<std::string_view>& known) const {
  if (!has(name)) return std::string(otherwise);
  const auto& value = values_->json.at(std::string(name));
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (std::find(known.begin(), known.end(), text) != known.end()) return text;
  }
  wrong_type(name, fmt::format("one of {}", fmt::join(known, ", ")));
}

const at::Tensor& CaseInputs::required(const std::string& name) const {
  const auto found = leaves_.find(name);
  if (found == leaves_.end()) fail_case(case_name_, fmt::format("missing tensor input.{}", name));
  return found->second;
}

at::Tensor CaseInputs::optional(const std::string& name) const {
  const auto found = leaves_.find(name);
  return found == leaves_.end() ? at::Tensor() : found->second;
}

}  // namespace attentive
