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

// Calls `work`; an error becomes that of an outcome.
template <class Work>
Outcome outcome_of(const std::string& place, const Work& work) {
  Outcome outcome{place};
  try {
    work(outcome);
  } catch (const c10::Error& error) {
    outcome.error = error.what_without_backtrace();
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}

// Runs the cases at a place. `done` is called with each outcome; a place that cannot be read is one outcome.
template <class Done>
void run(const std::string& place, const attentive::CaseSettings& settings, const Done& done) {
  std::map<std::string, attentive::SafetensorsFile> cases;
  auto read = outcome_of(place, [&](Outcome&) { cases = attentive::load_cases(place); });
  if (!read.error.empty()) return done(std::move(read));
  for (auto& [name, content] : cases) {
    auto& file = content;
    done(outcome_of(name, [&](Outcome& outcome) {
      outcome.report = attentive::run_case(attentive::make_case(std::move(file), outcome.path), settings);
    }));
  }
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
  std::vector<std::string> places;
  attentive::CaseSettings settings;
  std::string device = "cpu", backend = "auto";
  bool json = false, quiet = false, allow_skipped = false;
  const std::map<std::string, attentive::Backend> backends = {{"auto", attentive::Backend::Auto},
                                                              {"reference", attentive::Backend::Reference},
                                                              {"torch", attentive::Backend::Torch},
                                                              {"native", attentive::Backend::Native}};
  app.add_option("CASE", places, "FILE, a safetensors file with a case or a bundle of cases, or FILE#case")
      ->required();
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
    for (const auto& place : places) {
      run(place, settings, [&](Outcome outcome) {
        outcomes.push_back(std::move(outcome));
        const std::string status = outcomes.back().status();
        if (json || (quiet && status == "passed")) return;
        fmt::print("{}", to_text(outcomes.back()));
        apps::flush_output();
      });
    }
    if (json) {
      fmt::print("{}\n", to_json(outcomes));
    } else if (outcomes.size() > 1) {
      fmt::print("{}\n", summary(outcomes));
    }
    return exit_code(outcomes, allow_skipped);
  };
  return apps::run_main(app, argc, argv, work, {.failed = kUnusable, .usage = kUnusable});
}
