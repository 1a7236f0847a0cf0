#include "app.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include <ATen/Context.h>
#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <attentive/version.h>

#include "common/flags.h"
#include "common/run_main.h"
#include "run_document.h"
#include "support/report.h"

namespace notebooks {
namespace {

constexpr int kDifferent = 1;
constexpr int kUsage = 2;

struct Settings {
  std::string device = "auto", expected, html;
  View view;
};

bool passed(const Tally& tally) {
  return tally.passed();
}

// Checks that every row of the data file occurs in a document.
Tally missing_rows(const Expected& expected, const Walkthrough& walkthrough) {
  Tally tally;
  tally.document = "missing";
  for (const auto& entry : expected.entries()) {
    if (!walkthrough.shown().contains(entry.id)) tally.error += entry.id + " was not shown. ";
  }
  return tally;
}

std::string made_with(const std::string& program, c10::DeviceType device) {
  return fmt::format("Written by {} {} with LibTorch {} on {}.", program, ATTENTIVE_VERSION, TORCH_VERSION,
                     c10::Device(device).str());
}

int run(const std::vector<Document>& walked, const Settings& settings, const std::string& program) {
  TORCH_CHECK_VALUE(settings.device != "cuda" || at::hasCUDA(), "--device cuda: no CUDA device");
  const auto device = settings.device != "cpu" && at::hasCUDA() ? at::kCUDA : at::kCPU;

  const Expected expected = Expected::load(settings.expected);
  Walkthrough::Reports reports;
  reports.push_back(terminal_report(settings.view));
  if (!settings.html.empty()) {
    reports.push_back(page_report(settings.html, made_with(program, device)));
  }
  Walkthrough walkthrough(expected, device, settings.view, std::move(reports));
  std::vector<Tally> tallies;
  for (const auto& document : walked) {
    tallies.push_back(walkthrough.walk(document));
  }

  const auto& view = settings.view;
  const bool whole = std::all_of(tallies.begin(), tallies.end(), passed);
  TORCH_CHECK_VALUE(!walkthrough.shown().empty() || !whole, "no cell ", view.only, "; --list names them");
  if (view.list) return 0;
  if (view.only.empty() && walked.size() == documents().size()) {
    const Tally missing = missing_rows(expected, walkthrough);
    if (!missing.passed()) tallies.push_back(missing);
  }
  walkthrough.summarise(tallies);
  if (!settings.html.empty())
    fmt::print(" Written as pages: {}\n", (std::filesystem::path(settings.html) / "index.html").string());
  return std::all_of(tallies.begin(), tallies.end(), passed) ? 0 : kDifferent;
}

}  // namespace

int run_app(int argc, char** argv, const std::string& name, const std::vector<Document>& documents) {
  CLI::App app(
      "Walks through the cells of the notebooks and compares each C++ value with the notebook's own.\n"
      "Exit status: 0 if every number agrees, 1 if one does not, 2 on bad usage.",
      name);
  Settings settings;
  apps::add_device(app, settings.device, "where to compute: auto takes CUDA if there is any");
  app.add_flag("--full", settings.view.full, "print every number beside the notebook's own");
  app.add_option("--cell", settings.view.only, "show only this row, in full, such as 25, 4c or 001-25");
  app.add_flag("--source", settings.view.source, "print the C++ code of each cell that is shown");
  auto* list = app.add_flag("--list", settings.view.list, "name the rows and run nothing");
  app.add_option("--html", settings.html,
                 "also write a page for each document into this folder, and index.html")
      ->excludes(list);
  app.add_option("--expected", settings.expected,
                 "expected numbers, in place of the compiled-in expected.json");
  return apps::run_main(app, argc, argv, [&] { return run(documents, settings, name); },
                        {.failed = kUsage, .usage = kUsage});
}

int run_document(int argc, char** argv, std::string_view id) {
  auto walked = documents();
  if (id.empty()) return run_app(argc, argv, "attentive-notebooks", walked);
  std::erase_if(walked, [&](const Document& document) { return document.id != id; });
  return run_app(argc, argv, fmt::format("attentive-notebook-{}", id), walked);
}

}  // namespace notebooks
