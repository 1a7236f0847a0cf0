// docs/options.md holds a table of every option on every backend. This test makes the table from what the
// backends answer, and compares; ATTENTIVE_UPDATE_DOCS=1 writes it.

#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include <attentive/functional/explain.h>

#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr std::array kTypes = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};
constexpr std::array kTypeNames = {"float64", "float32", "bfloat16", "float16"};
const std::string kBegin = "<!-- table begin -->\n", kEnd = "<!-- table end -->\n";

// "yes", "float32, bfloat16" or "no: reason" for one option on one backend.
std::string cell(const OptionCall& call, Backend backend, std::map<std::string, int>& reasons) {
  std::string types;
  size_t count = 0;
  std::string reason;
  for (size_t n = 0; n < kTypes.size(); ++n) {
    const auto outcome = run_on(cast(call, kTypes[n]), backend);
    if (outcome.refused) {
      reason = reason.empty() || reason.find("float64") != std::string::npos ? outcome.reason : reason;
      continue;
    }
    ++count;
    types += (types.empty() ? "" : ", ") + std::string(kTypeNames[n]);
  }
  if (count == kTypes.size()) return "yes";
  if (count > 0) return types;
  const auto number = reasons.emplace(reason, static_cast<int>(reasons.size()) + 1).first->second;
  return fmt::format("no ({})", number);
}

std::string table() {
  std::vector<Backend> backends;
  const auto plain = plain_call();
  for (const auto& candidate : explain(plain.q, plain.k, plain.v).candidates)
    backends.push_back(candidate.backend);

  std::map<std::string, int> reasons;
  std::string text = "| option |";
  for (const auto backend : backends) text += fmt::format(" {} |", to_string(backend));
  text += "\n|---|";
  for (size_t n = 0; n < backends.size(); ++n) text += "---|";
  const auto row = [&](const std::string& name, const OptionCall& call) {
    text += fmt::format("\n| {} |", name);
    for (const auto backend : backends) text += fmt::format(" {} |", cell(call, backend, reasons));
  };
  row("none", plain);
  for (const auto& option : option_cases()) {
    auto call = plain_call();
    option.apply(call);
    row(option.name, call);
  }
  text += "\n\n";
  std::vector<std::string> ordered(reasons.size());
  for (const auto& [reason, number] : reasons) ordered[static_cast<size_t>(number) - 1] = reason;
  for (size_t n = 0; n < ordered.size(); ++n) text += fmt::format("({}) {}\n", n + 1, ordered[n]);
  return text;
}

}  // namespace

TEST_CASE("the options table of the docs is what the backends answer", "[options][docs]") {
  const std::string path = std::string(ATTENTIVE_SOURCE_DIR) + "/docs/options.md";
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  std::string page = content.str();
  const auto begin = page.find(kBegin), end = page.find(kEnd);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  const auto from = begin + kBegin.size();
  if (std::getenv("ATTENTIVE_UPDATE_DOCS")) {
    page.replace(from, end - from, table());
    std::ofstream(path) << page;
  } else {
    CHECK(page.substr(from, end - from) == table());
  }
}
