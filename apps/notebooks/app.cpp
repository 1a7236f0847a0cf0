#include "app.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "notebooks.h"
#include "support/table.h"

namespace notebooks {
namespace {

constexpr int kDifferent = 1;
constexpr int kUsage = 2;

const std::map<std::string, std::function<Tally(Walkthrough&)>> kDocuments = {
    {"000", toy_self_attention},
    {"001", chapter_3},
    {"002", query_key_value_numbers},
    {"003", blog_multi_head},
    {"004", fused_self_attention}};

struct Settings {
  std::string device = "auto", cell, expected;
  bool list = false;
};

bool passed(const Tally& tally) {
  return tally.passed();
}

int usage_error(const std::string& name, const std::string& message) {
  fmt::print(stderr, "{}: {}\n", name, message);
  return kUsage;
}

// Every row of the data file has its place in a document.
Tally missing_rows(const Expected& expected, const Walkthrough& walkthrough) {
  Tally tally;
  tally.document = "missing";
  for (const auto& entry : expected.entries()) {
    if (!walkthrough.shown().contains(entry.id)) tally.error += entry.id + " was not shown. ";
  }
  return tally;
}

int run(const std::string& name, const std::vector<std::string>& documents, const Settings& settings) {
  if (settings.device == "cuda" && !at::hasCUDA()) return usage_error(name, "--device cuda: no CUDA device");
  const bool cuda = settings.device != "cpu" && at::hasCUDA();

  const Expected expected = Expected::load(settings.expected);
  Walkthrough walkthrough(expected, cuda ? at::kCUDA : at::kCPU, settings.cell, settings.list);
  std::vector<Tally> tallies;
  for (const auto& document : documents) tallies.push_back(kDocuments.at(document)(walkthrough));

  if (walkthrough.shown().empty() && std::all_of(tallies.begin(), tallies.end(), passed)) {
    return usage_error(name, fmt::format("no cell {}; --list names them", settings.cell));
  }
  if (settings.list) return 0;
  if (settings.cell.empty() && documents.size() == kDocuments.size()) {
    const Tally missing = missing_rows(expected, walkthrough);
    if (!missing.passed()) tallies.push_back(missing);
  }
  print_summary(tallies);
  return std::all_of(tallies.begin(), tallies.end(), passed) ? 0 : kDifferent;
}

}  // namespace

int run_app(int argc, char** argv, const std::string& document) {
  std::vector<std::string> documents;
  for (const auto& [id, walk] : kDocuments) {
    if (document.empty() || id == document) documents.push_back(id);
  }
  const std::string name = document.empty() ? "attentive-notebooks" : "attentive-notebook-" + document;

  CLI::App app(
      "Walks through the cells of the notebooks and shows each C++ value beside the notebook's own.\n"
      "Exit status: 0 if every number agrees, 1 if one does not, 2 on bad usage.",
      name);
  Settings settings;
  app.add_option("--device", settings.device, "where to compute: auto takes CUDA if there is any")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--cell", settings.cell, "show only this row, such as 25, 4c or 001-25");
  app.add_flag("--list", settings.list, "name the rows and run nothing");
  app.add_option("--expected", settings.expected,
                 "expected numbers, in place of the compiled-in expected.json");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  try {
    return run(name, documents, settings);
  } catch (const std::exception& error) {
    return usage_error(name, error.what());
  }
}

}  // namespace notebooks
