#include "support/report.h"

#include <cstdio>
#include <fstream>
#include <map>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/run_main.h"
#include "support/svg.h"

namespace bench {
namespace {

std::string duration(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

std::string fraction(double value) {
  return value > 0 ? fmt::format("{:.1f} %", 100 * value) : "-";
}

nlohmann::ordered_json to_json(const Spread& spread) {
  return {{"p10", spread.p10}, {"median", spread.median}, {"p90", spread.p90}};
}

nlohmann::ordered_json to_json(const Row& row, const Peaks& peaks) {
  nlohmann::ordered_json json = {
      {"suite", row.suite},
      {"case", row.name},
      {"dtype", row.dtype},
      {"threads", row.threads},
      {"work", row.work},
      {"limit", to_string(row.limit)},
      {"check", {{"against", row.check.against}, {"error", row.check.error}, {"allowed", row.check.allowed}}},
      {"timings", nlohmann::ordered_json::array()},
      {"refusals", nlohmann::ordered_json::array()}};
  for (const auto& timing : row.timings) {
    json["timings"].push_back(
        {{"contender", timing.contender},
         {"seconds", to_json(timing.seconds)},
         {"ratio_to_ours", to_json(timing.ratio)},
         {"fraction_of_limit", fraction_of(peaks.find(row.limit), row.work, timing.seconds.median)},
         {"fraction_of_limit_same_round", timing.fraction_same_round},
         {"rounds", timing.rounds},
         {"calls_per_sample", timing.calls}});
  }
  for (const auto& refusal : row.refusals)
    json["refusals"].push_back({{"contender", refusal.contender}, {"why", refusal.why}});
  return json;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace

void print_head(const Machine& machine, const Settings& settings) {
  fmt::print("{}\nmeasuring the machine's limits, a few seconds:\n", to_string(machine, settings.threads));
  apps::flush_output();
}

void print_limit(const std::string& limit) {
  fmt::print("  {}\n", limit);
  apps::flush_output();
}

void print_columns(const std::string& suite) {
  fmt::print("\n{}\n\n", suite);
  fmt::print("| {:<26} | {:<4} | {:<26} | {:>9} | {:>21} | {:>7} | {:>15} | {:>7} | {:>7} |\n", "case",
             "type", "way (error against)", "median", "p10 - p90", "x ours", "p10 - p90", "limit", "live");
  fmt::print("|{:-<28}|{:-<6}|{:-<28}|{:->10}:|{:->22}:|{:->8}:|{:->16}:|{:->8}:|{:->8}:|\n", "", "", "", "",
             "", "", "", "", "");
  std::fflush(stdout);
}

void print_row(const Row& row) {
  for (std::size_t i = 0; i < row.timings.size(); ++i) {
    const auto& timing = row.timings[i];
    const std::string way =
        i == 0 ? fmt::format("**{}** ({:.0e})", timing.contender, row.check.error) : timing.contender;
    fmt::print("| {:<26} | {:<4} | {:<26} | {:>9} | {:>21} | {:>7} | {:>15} | {:>7} | {:>7} |\n", row.name,
               row.dtype, way, duration(timing.seconds.median),
               duration(timing.seconds.p10) + " - " + duration(timing.seconds.p90),
               i == 0 ? "1" : fmt::format("{:.2f}", timing.ratio.median),
               i == 0 ? "" : fmt::format("{:.2f} - {:.2f}", timing.ratio.p10, timing.ratio.p90),
               fraction(timing.fraction), fraction(timing.fraction_same_round));
  }
  for (const auto& refusal : row.refusals)
    fmt::print("| {:<26} | {:<4} | {:<26} | not run: {} |\n", row.name, row.dtype, refusal.contender,
               refusal.why);
  apps::flush_output();
}

void print_growth(const std::vector<GrowthPoint>& points) {
  if (points.empty()) return;
  fmt::print("\n| {:<24} | {:>6} | {:>9} | {:>12} |\n|{:-<26}|{:->7}:|{:->10}:|{:->13}:|\n", "series", "T",
             "time", "peak memory", "", "", "", "");
  for (const auto& point : points) {
    fmt::print("| {:<24} | {:>6} | {:>9} | {:>8.1f} MiB |\n", point.series, point.tokens,
               duration(point.seconds), point.bytes / (1 << 20));
  }
}

void write_json(const std::string& path, const Machine& machine, const Runner& runner) {
  const auto& peaks = runner.peaks();
  nlohmann::ordered_json json = {{"machine",
                                  {{"cpu", machine.cpu},
                                   {"isa", machine.isa},
                                   {"capability", machine.capability},
                                   {"cores", machine.cores},
                                   {"device", machine.device},
                                   {"libtorch", machine.libtorch},
                                   {"compiler", machine.compiler},
                                   {"attentive", machine.package}}},
                                 {"peaks",
                                  {{"threads", peaks.threads},
                                   {"fp32_flops", peaks.fp32.rate},
                                   {"fp32_method", peaks.fp32.method},
                                   {"bf16_flops", peaks.bf16.rate},
                                   {"bf16_method", peaks.bf16.method},
                                   {"read_bytes_per_second", peaks.read.rate},
                                   {"read_method", peaks.read.method}}},
                                 {"rows", nlohmann::ordered_json::array()},
                                 {"growth", nlohmann::ordered_json::array()}};
  for (const auto& row : runner.rows()) json["rows"].push_back(to_json(row, peaks));
  for (const auto& point : runner.growth()) {
    json["growth"].push_back({{"series", point.series},
                              {"tokens", point.tokens},
                              {"seconds", point.seconds},
                              {"bytes", point.bytes}});
  }
  write_file(path, json.dump(1) + "\n");
}

void write_plot(const std::string& path, const Machine& machine, const Runner& runner) {
  Panel time{"Time of one forward pass", "tokens T", "milliseconds", {}},
      memory{"Peak growth of resident memory", "tokens T", "MiB", {}};
  std::map<std::string, std::size_t> places;
  for (const auto& point : runner.growth()) {
    const auto [place, is_new] = places.try_emplace(point.series, time.series.size());
    if (is_new) {
      time.series.push_back({point.series, {}});
      memory.series.push_back({point.series, {}});
    }
    const auto tokens = static_cast<double>(point.tokens);
    time.series[place->second].points.emplace_back(tokens, point.seconds * 1e3);
    memory.series[place->second].points.emplace_back(tokens, point.bytes / (1 << 20));
  }
  if (time.series.empty()) throw std::runtime_error("--svg plots the growth suite, which did not run");
  write_file(path, to_svg(fmt::format("Causal attention, B1 H12 D64, {} threads, {}",
                                      runner.settings().threads, machine.cpu),
                          {time, memory}));
}

}  // namespace bench
