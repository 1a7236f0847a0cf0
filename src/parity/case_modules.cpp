#include "parity/case_modules.h"

#include <algorithm>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace attentive {
namespace {

bool knows(const std::vector<std::string_view>& known, const std::string& name) {
  return std::find(known.begin(), known.end(), name) != known.end();
}

void check_known(const Case& test_case, std::string_view what, const std::string& name,
                 const std::vector<std::string_view>& known) {
  if (knows(known, name)) return;
  fail_case(test_case.name, fmt::format("unknown {} {} of {}; known: {}", what, name, test_case.module,
                                        known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
}

const std::vector<CaseModule>& case_registry() {
  static const std::vector<CaseModule> registry = [] {
    auto modules = notebook_case_modules();
    for (auto more : {torch_case_modules(), model_case_modules()})
      std::move(more.begin(), more.end(), std::back_inserter(modules));
    return modules;
  }();
  return registry;
}

}  // namespace

CaseArguments::CaseArguments(std::string case_name, std::string what, const std::string& json)
    : case_name_(std::move(case_name)), what_(std::move(what)) {
  std::set<std::string> seen;
  std::string repeated;  // a repeated key, of which the parser would silently keep the last value
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, const nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!seen.insert(key).second) repeated = key;
    }
    return true;
  };
  values_ = nlohmann::json::parse(json, watch, /*allow_exceptions=*/false);
  if (!values_.is_object()) {
    fail_case(case_name_, fmt::format("the {}s are not a JSON object: {}", what_, json.substr(0, 200)));
  }
  if (!repeated.empty()) fail_case(case_name_, fmt::format("{} {} comes twice", what_, repeated));
}

std::vector<std::string> CaseArguments::names() const {
  std::vector<std::string> result;
  for (const auto& item : values_.items()) result.push_back(item.key());
  return result;
}

const nlohmann::json* CaseArguments::find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() || found->is_null() ? nullptr : &*found;
}

bool CaseArguments::has(std::string_view name) const {
  return find(name) != nullptr;
}

void CaseArguments::wrong_type(std::string_view name, std::string_view expected) const {
  const auto& value = *find(name);
  // Only names a structured value: printing it would recurse as deep as it nests.
  fail_case(case_name_,
            fmt::format("expected {} {} to be {}, got {}", what_, name, expected,
                        value.is_structured() ? "a JSON " + std::string(value.type_name()) : value.dump()));
}

void CaseArguments::missing(std::string_view name) const {
  fail_case(case_name_, fmt::format("missing {} {}", what_, name));
}

std::optional<int64_t> CaseArguments::optional_integer(std::string_view name) const {
  const auto* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number_integer()) wrong_type(name, "an integer");
  return value->get<int64_t>();
}

std::optional<double> CaseArguments::optional_number(std::string_view name) const {
  const auto* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) wrong_type(name, "a number");
  return value->get<double>();
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
  const auto* value = find(name);
  if (!value) return otherwise;
  if (!value->is_boolean()) wrong_type(name, "true or false");
  return value->get<bool>();
}

std::string CaseArguments::choice(std::string_view name, std::string_view otherwise,
                                  const std::vector<std::string_view>& known) const {
  const auto* value = find(name);
  if (!value) return std::string(otherwise);
  if (value->is_string() && knows(known, value->get_ref<const std::string&>()))
    return value->get<std::string>();
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

const CaseModule& find_case_module(const Case& test_case, const CaseArguments& options,
                                   const CaseArguments& call) {
  const CaseModule* found = nullptr;
  size_t best = 0;
  const auto given = options.names();
  for (const auto& candidate : case_registry()) {
    if (candidate.name != test_case.module) continue;
    const auto known = static_cast<size_t>(std::count_if(
        given.begin(), given.end(), [&](const auto& name) { return knows(candidate.options, name); }));
    // Chooses the class that knows most of the options; its first unknown option is reported below.
    if (!found || known > best) {
      found = &candidate;
      best = known;
    }
  }
  if (!found) {
    fail_case(test_case.name,
              fmt::format("unknown module {}; known: {}", test_case.module, fmt::join(case_modules(), ", ")));
  }
  for (const auto& name : given) check_known(test_case, "option", name, found->options);
  for (const auto& name : call.names()) check_known(test_case, "call argument", name, found->call);
  for (const auto& [name, tensor] : test_case.inputs) check_known(test_case, "input", name, found->inputs);
  return *found;
}

std::vector<std::string> case_modules() {
  std::set<std::string> names;
  for (const auto& entry : case_registry()) names.emplace(entry.name);
  return {names.begin(), names.end()};
}

}  // namespace attentive
