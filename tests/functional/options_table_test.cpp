// docs/options.md holds a table of every option on every backend. This test makes the table from what the
// backends answer, and compares; ATTENTIVE_UPDATE_DOCS=1 writes it.
//
// Which dtypes the native kernel takes depends on the processor: the page shows one that has all of them, and
// what the processor at hand lacks is left out of the comparison, by name.

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

#include "kernels/cpu/gemm.h"
#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;

namespace {

struct Type {
  at::ScalarType type;
  std::string name;
};
const std::array kTypes = {Type{at::kDouble, "float64"}, Type{at::kFloat, "float32"},
                           Type{at::kBFloat16, "bfloat16"}, Type{at::kHalf, "float16"}};
const std::string kBegin = "<!-- table begin -->\n", kEnd = "<!-- table end -->\n";

// A dtype as the table names it; a star says that it depends on the processor.
std::string label(Backend backend, const Type& type) {
  return type.name + (backend == Backend::Native && type.type == at::kBFloat16 ? "*" : "");
}

// A backend and the dtypes that it takes here when no option is set.
struct Column {
  Backend backend;
  std::vector<Type> taken;
};

std::vector<Column> columns() {
  std::vector<Column> all;
  const auto plain = plain_call();
  for (const auto& candidate : explain(plain.q, plain.k, plain.v).candidates) {
    all.push_back({candidate.backend, {}});
    for (const auto& type : kTypes) {
      if (!run_on(cast(plain, type.type), candidate.backend).refused) all.back().taken.push_back(type);
    }
  }
  return all;
}

// "yes", "float32, bfloat16*" or "no: reason" for one option on one backend. The reason is the answer at a
// dtype that the backend takes, so that it speaks of the option.
std::string cell(const OptionCall& call, const Column& column) {
  std::vector<std::string> types;
  std::string reason;
  for (const auto& type : column.taken) {
    const auto outcome = run_on(cast(call, type.type), column.backend);
    if (!outcome.refused) {
      types.push_back(label(column.backend, type));
    } else if (reason.empty()) {
      reason = outcome.reason;
    }
  }
  if (types.size() == kTypes.size()) return "yes";
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
  for (const auto& option : option_cases()) {
    auto call = plain_call();
    option.apply(call);
    add(option.name, call);
  }
  return rows;
}

// The rows as a table, with the reasons numbered below it.
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

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  return parts;
}

// Undoes `to_text`.
std::vector<Row> parse(const std::string& text) {
  std::vector<Row> rows;
  std::map<std::string, std::string> reasons;  // by "(1)"
  for (const auto& line : split(text, "\n")) {
    if (line.starts_with("(")) reasons[line.substr(0, line.find(' '))] = line.substr(line.find(' ') + 1);
    if (!line.starts_with("| ")) continue;
    auto cells = split(line.substr(2, line.size() - 4), " | ");
    if (cells[0] != "option") rows.push_back(std::move(cells));
  }
  for (auto& row : rows) {
    for (auto& content : row) {
      if (content.starts_with("no (")) content = "no: " + reasons[content.substr(3)];
    }
  }
  return rows;
}

// What a cell of the page says about a processor on which the backend takes `column.taken` only.
std::string restricted(const std::string& content, const Column& column) {
  if (content.starts_with("no: ") || content == "yes") return content;
  std::vector<std::string> left;
  for (const auto& type : column.taken) {
    for (const auto& listed : split(content, ", ")) {
      if (listed == label(column.backend, type)) left.push_back(listed);
    }
  }
  return fmt::format("{}", fmt::join(left, ", "));
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
  const auto all = columns();
  if (std::getenv("ATTENTIVE_UPDATE_DOCS")) {
    REQUIRE(kernels::cpu::has_gemm_f32());
    REQUIRE(kernels::cpu::has_gemm_bf16());
    page.replace(from, end - from, to_text(all, rows_of(all)));
    std::ofstream(path) << page;
    return;
  }
  const auto text = page.substr(from, end - from);
  const auto written = parse(text), answered = rows_of(all);
  REQUIRE(written.size() == answered.size());
  for (size_t r = 0; r < written.size(); ++r) {
    INFO("option " << answered[r][0]);
    REQUIRE(written[r].size() == all.size() + 1);
    CHECK(written[r][0] == answered[r][0]);
    for (size_t c = 0; c < all.size(); ++c) {
      INFO("backend " << to_string(all[c].backend));
      if (all[c].taken.empty()) continue;  // a processor without any product of the kernel: told below
      CHECK(restricted(written[r][c + 1], all[c]) == answered[r][c + 1]);
    }
  }
  if (kernels::cpu::has_gemm_f32() && kernels::cpu::has_gemm_bf16()) CHECK(text == to_text(all, written));
}

TEST_CASE("a dtype that the processor has no product for is refused by that name", "[options][docs]") {
  const auto refusal = [](at::ScalarType type) {
    const auto outcome = run_on(cast(plain_call(), type), Backend::Native);
    return outcome.refused ? outcome.reason : "";
  };
  CHECK(refusal(at::kFloat) ==
        (kernels::cpu::has_gemm_f32() ? "" : "oneDNN has no float32 tile product on this CPU"));
  CHECK(refusal(at::kBFloat16) ==
        (kernels::cpu::has_gemm_bf16() ? "" : "oneDNN has no bfloat16 tile product on this CPU"));
  for (const auto type : {at::kDouble, at::kHalf}) CHECK(refusal(type) == "it takes float32 and bfloat16");
}
