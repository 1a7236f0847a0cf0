// docs/options.md contains a table of every option on every backend. This test makes the table from the
// verdicts of the backends and compares it; ATTENTIVE_UPDATE_DOCS=1 writes it. The table is equal on every
// processor.

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <attentive/functional/explain.h>

#include "support/option_cases.h"
#include "support/source_folder.h"

using namespace attentive;
using namespace attentive::test;

namespace {

struct Type {
  at::ScalarType type;
  std::string name;
};
const std::array kNamedTypes = {Type{at::kDouble, "float64"}, Type{at::kFloat, "float32"},
                                Type{at::kBFloat16, "bfloat16"}, Type{at::kHalf, "float16"}};
const std::string kBegin = "<!-- table begin -->\n", kEnd = "<!-- table end -->\n";

// A backend and the dtypes that it accepts without options.
struct Column {
  Backend backend;
  std::vector<Type> taken;
};

std::vector<Column> columns() {
  std::vector<Column> all;
  const auto plain = plain_call();
  for (const auto& candidate : explain(plain.q, plain.k, plain.v).candidates) {
    all.push_back({candidate.backend, {}});
    for (const auto& type : kNamedTypes) {
      if (!run_on(cast(plain, type.type), candidate.backend).refused) all.back().taken.push_back(type);
    }
  }
  return all;
}

// "yes", "float32, bfloat16" or "no: reason" for one option on one backend. The reason is taken at a dtype
// that the backend accepts, so that it concerns the option.
std::string cell(const OptionCall& call, const Column& column) {
  std::vector<std::string> types;
  std::string reason;
  for (const auto& type : column.taken) {
    const auto outcome = run_on(cast(call, type.type), column.backend);
    if (!outcome.refused) {
      types.push_back(type.name);
    } else if (reason.empty()) {
      reason = outcome.reason;
    }
  }
  if (types.size() == kNamedTypes.size()) return "yes";
  return types.empty() ? "no: " + reason : fmt::format("{}", fmt::join(types, ", "));
}

using Row = std::vector<std::string>;  // the option's name, then a cell for every backend

std::vector<Row> rows_of(const std::vector<Column>& all) {
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, const OptionCall& call) {
    rows.push_back({name});
    for (const auto& column : all) rows.back().push_back(cell(call, column));
  };
  add("none", plain_call());
  for (const auto* cases : {&option_cases(), &function_cases()}) {
    for (const auto& option : *cases) {
      auto call = plain_call();
      option.apply(call);
      add(option.name, call);
    }
  }
  return rows;
}

// Writes the rows as a table, with numbered reasons below it.
std::string to_text(const std::vector<Column>& all, const std::vector<Row>& rows) {
  std::string text = "| option |", line = "|---|", notes;
  for (const auto& column : all) {
    text += fmt::format(" {} |", to_string(column.backend));
    line += "---|";
  }
  text += '\n' + line;
  std::map<std::string, size_t> numbers;
  for (const auto& row : rows) {
    text += "\n|";
    for (const auto& content : row) {
      if (!content.starts_with("no: ")) {
        text += fmt::format(" {} |", content);
        continue;
      }
      const auto reason = content.substr(4);
      const auto [number, fresh] = numbers.emplace(reason, numbers.size() + 1);
      if (fresh) notes += fmt::format("({}) {}\n", number->second, reason);
      text += fmt::format(" no ({}) |", number->second);
    }
  }
  return text + "\n\n" + notes;
}

}  // namespace

TEST_CASE("the options table of the docs is what the backends answer", "[options][docs][short]") {
  const std::string path = source_folder() + "/docs/options.md";
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  std::string page = content.str();
  const auto begin = page.find(kBegin), end = page.find(kEnd);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  const auto from = begin + kBegin.size();
  const auto all = columns();
  const auto table = to_text(all, rows_of(all));
  if (std::getenv("ATTENTIVE_UPDATE_DOCS")) {
    page.replace(from, end - from, table);
    std::ofstream(path) << page;
    return;
  }
  CHECK(page.substr(from, end - from) == table);
}

TEST_CASE("a dtype that the native kernel lacks is refused by name", "[options][docs]") {
  const auto refusal = [](at::ScalarType type) {
    const auto outcome = run_on(cast(plain_call(), type), Backend::Native);
    return outcome.refused ? outcome.reason : "";
  };
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) CHECK(refusal(type) == "");
  CHECK(refusal(at::kDouble) == "it accepts only float32, bfloat16 and float16");
}
