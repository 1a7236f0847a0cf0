#include "parity/case_modules.h"

#include <algorithm>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parity/case_arguments.h"

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

}  // namespace

const std::vector<CaseModule>& case_registry() {
  static const std::vector<CaseModule> registry = [] {
    auto modules = notebook_case_modules();
    for (auto more : {torch_case_modules(), torch_layer_case_modules(), torch_stack_case_modules(),
                      model_case_modules(), encoder_case_modules()})
      std::move(more.begin(), more.end(), std::back_inserter(modules));
    return modules;
  }();
  return registry;
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
