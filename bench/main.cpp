// attentive-bench: times this package against PyTorch's ways to compute the same, in one process, after
// checking each result.

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "common/run_main.h"
#include "suites.h"
#include "support/report.h"

namespace {

constexpr int kUsage = 2;

bool is_chosen(const bench::Suite& suite, const std::vector<std::string>& wanted, at::Device device) {
  if (!wanted.empty()) return std::ranges::find(wanted, suite.name) != wanted.end();
  return suite.meant == bench::Meant::Both || (suite.meant == bench::Meant::Gpu) == device.is_cuda();
}

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  for (const auto& suite : bench::kSuites) names.emplace_back(suite.name);
  return names;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Times attentive against PyTorch's own ways, interleaved in one process; a wrong result is not timed.\n"
      "Exit status: 0, 1 if a result was wrong or a file could not be written, 2 for wrong arguments or no "
      "case chosen.",
      "attentive-bench");
  bench::Settings settings;
  settings.threads = at::get_num_threads();
  std::vector<std::string> wanted;
  std::string csv, svg, device = "cpu", device_name;
  const auto names = suite_names();
  app.add_option("--suite", wanted, "suites to run; if none is named, all that are meant for the device")
      ->check(CLI::IsMember(names));
  app.add_option("--device", device)->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  app.add_option("--device-name", device_name, "what the report calls the GPU");
  app.add_option("--tokens", settings.tokens, "T of the suites for a GPU")->check(CLI::PositiveNumber);
  app.add_option("--head-dim", settings.head_dims, "D of the suites for a GPU")->check(CLI::PositiveNumber);
  app.add_option("--threads", settings.threads, "threads of ATen")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--budget", settings.budget, "seconds of timing a case; five rounds are run in any case")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--case", settings.cases, "only cases whose name holds one of these texts, such as T=1k");
  app.add_option("--dtype", settings.dtypes, "only these")->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  app.add_option("--csv", csv, "writes every figure to this file, one a line");
  app.add_option("--svg", svg, "plots the growth suite to this file");
  return apps::run_main(app, argc, argv, [&] {
    at::set_num_threads(settings.threads);
    settings.device = at::Device(device);
    if (settings.device.is_cuda() && !at::hasCUDA()) {
      apps::print_error("attentive-bench: no CUDA device");
      return kUsage;
    }
    for (const auto& suite : bench::kSuites) {
      if (settings.device.is_cuda() && suite.meant == bench::Meant::Cpu &&
          is_chosen(suite, wanted, settings.device)) {
        apps::print_error(fmt::format("attentive-bench: the suite {} is for the CPU", suite.name));
        return kUsage;
      }
    }
    if (settings.device.is_cuda() && device_name.empty()) device_name = "CUDA device";
    const auto machine = bench::describe_machine(device_name);
    bench::print_head(machine, settings);
    const bool gpu_suites_alone = std::ranges::all_of(bench::kSuites, [&](const auto& suite) {
      return suite.meant == bench::Meant::Gpu || !is_chosen(suite, wanted, settings.device);
    });
    // Also for trying these suites on the CPU.
    const bool device_peaks = settings.device.is_cuda() || gpu_suites_alone;
    bench::Runner runner(settings, device_peaks
                                       ? bench::measure_device_peaks(settings.device, bench::print_limit)
                                       : bench::measure_peaks(settings.threads, bench::print_limit));
    for (const auto& suite : bench::kSuites) {
      const std::string name(suite.name);
      if (!is_chosen(suite, wanted, settings.device)) continue;
      if (name != "growth") bench::print_columns(name);
      suite.run(runner);
      if (!csv.empty())
        bench::write_csv(csv, machine, runner);  // an interrupted run keeps its finished suites
    }
    if (runner.rows().empty() && runner.growth().empty()) {
      apps::print_error(
          "attentive-bench: no case was chosen: see the names that a run without --case prints");
      return kUsage;
    }
    bench::print_growth(runner.growth());
    if (!svg.empty()) bench::write_plot(svg, machine, runner);
    return 0;
  });
}
