// attentive-parity: runs cases of Python modules on the C++ modules with the same names and compares all
// numbers.

#include <map>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <attentive/parity/case.h>

#include "common/flags.h"
#include "common/run_main.h"
#include "report.h"

namespace {

constexpr int kDifferent = 1;
constexpr int kUnusable = 2;

Outcome run(const std::string& path, const attentive::CaseSettings& settings) {
  Outcome outcome{path};
  try {
    outcome.report = attentive::run_case(attentive::read_case(path), settings);
  } catch (const c10::Error& error) {
    outcome.error = error.what_without_backtrace();
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}

int exit_code(const std::vector<Outcome>& outcomes, bool allow_skipped) {
  int code = 0;
  for (const auto& outcome : outcomes) {
    const std::string status = outcome.status();
    if (status == "unusable" || (status == "skipped" && !allow_skipped)) return kUnusable;
    if (status == "different") code = kDifferent;
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Runs parity cases written from Python modules on the C++ modules of the same names.\n"
      "Exit status: 0 if every tensor of every case agrees, 1 on a difference, 2 if a case cannot be run.",
      "attentive-parity");
  std::vector<std::string> paths;
  attentive::CaseSettings settings;
  std::string device = "cpu", backend = "auto";
  bool json = false, quiet = false, allow_skipped = false;
  const std::map<std::string, attentive::Backend> backends = {{"auto", attentive::Backend::Auto},
                                                              {"reference", attentive::Backend::Reference},
                                                              {"torch", attentive::Backend::Torch},
                                                              {"native", attentive::Backend::Native}};
  app.add_option("CASE", paths, "safetensors files that hold a case")->required();
  app.add_option("--atol", settings.atol, "absolute tolerance, in place of the dtype's own")
      ->check(apps::number(0, 1e300));
  app.add_option("--rtol", settings.rtol, "relative tolerance, in place of the dtype's own")
      ->check(apps::number(0, 1e300));
  apps::add_device(app, device, "where to run: auto takes CUDA if there is any");
  app.add_option("--backend", backend, "what computes; all but auto are forced")
      ->check(CLI::IsMember(backends))
      ->capture_default_str();
  app.add_flag("--json", json, "print one JSON document");
  app.add_flag("-q,--quiet", quiet, "print only the cases that do not pass, and the summary");
  app.add_flag("--allow-skipped", allow_skipped,
               "a case with the dropout of another kind of machine is no error");
  const auto work = [&] {
    TORCH_CHECK_VALUE(device != "cuda" || at::hasCUDA(), "--device cuda: no CUDA device");
    if (device == "cuda" || (device == "auto" && at::hasCUDA())) settings.device = at::kCUDA;
    settings.backend = backends.at(backend);
    std::vector<Outcome> outcomes;
    for (const auto& path : paths) {
      outcomes.push_back(run(path, settings));
      const std::string status = outcomes.back().status();
      if (json || (quiet && status == "passed")) continue;
      fmt::print("{}", to_text(outcomes.back()));
      apps::flush_output();
    }
    if (json) {
      fmt::print("{}\n", to_json(outcomes));
    } else if (paths.size() > 1) {
      fmt::print("{}\n", summary(outcomes));
    }
    return exit_code(outcomes, allow_skipped);
  };
  return apps::run_main(app, argc, argv, work, {.failed = kUnusable, .usage = kUnusable});
}
