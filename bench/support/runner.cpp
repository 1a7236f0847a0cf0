#include "support/runner.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "support/machine.h"
#include "support/report.h"
#include "support/timing.h"

namespace bench {
namespace {

constexpr double kShortestSample = 5e-4;    // seconds: well above the clock's and the scheduler's grain
constexpr double kShortestOnDevice = 5e-3;  // well above the wait for the device
constexpr double kLongestProbe = 0.1;       // seconds
constexpr int kFewestRounds = 5;
constexpr int kMostRounds = 400;

double allowed_for(const std::string& dtype) {
  return dtype == "bf16" ? 3e-2 : 1e-4;
}

}  // namespace

std::string to_string(Limit limit) {
  switch (limit) {
    case Limit::None:
      break;
    case Limit::Fp32:
      return "fp32";
    case Limit::Bf16:
      return "bf16";
    case Limit::Read:
      return "read";
  }
  return "";
}

double difference(const Tensors& result, const Tensors& reference) {
  if (result.size() != reference.size()) throw std::runtime_error("the contenders return different things");
  double worst = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (result[i].sizes() != reference[i].sizes()) throw std::runtime_error("the contenders' shapes differ");
    const auto expected = reference[i].detach().to(at::kFloat);
    const double largest = expected.abs().max().item<double>();
    const double off = (result[i].detach().to(at::kFloat) - expected).abs().max().item<double>();
    const double error = off / std::max(largest, 1e-12);
    if (!(error <= worst)) worst = error;  // keeps a NaN
  }
  return worst;
}

Runner::Runner(Settings settings, Peaks peaks) : settings_(std::move(settings)), peaks_(std::move(peaks)) {}

std::string type_name(at::ScalarType type) {
  return type == at::kBFloat16 ? "bf16" : type == at::kHalf ? "fp16" : "fp32";
}

bool Runner::wants(at::ScalarType type) const {
  if (settings_.dtypes.empty()) return true;
  return std::ranges::find(settings_.dtypes, type_name(type)) != settings_.dtypes.end();
}

bool Runner::wants(const Case& the_case) const {
  const auto names_it = [&](const std::string& part) {
    return the_case.name.find(part) != std::string::npos;
  };
  return settings_.cases.empty() || std::ranges::any_of(settings_.cases, names_it);
}

void Runner::add(GrowthPoint point) {
  growth_.push_back(std::move(point));
}

double fraction_of(const Peak* limit, double work, double seconds) {
  return limit && limit->rate > 0 ? work / limit->rate / seconds : 0;
}

std::vector<Refusal> Runner::leave_out_refusals(Case& the_case) const {
  std::vector<Refusal> refusals;
  std::erase_if(the_case.contenders, [&](const Contender& contender) {
    if (contender.may_refuse == MayRefuse::Never) return false;
    try {
      contender.run();
      finish(settings_.device);
      return false;
    } catch (const c10::OutOfMemoryError&) {
      refusals.push_back({contender.name, "out of memory"});
    } catch (const c10::Error& error) {
      if (contender.may_refuse != MayRefuse::Always) throw;
      const std::string why = error.what_without_backtrace();
      refusals.push_back({contender.name, why.substr(0, why.find('\n'))});
    }
    return true;
  });
  return refusals;
}

/// Mean seconds of so many calls, the device's work included.
double Runner::sample(const Contender& contender, int calls) const {
  finish(settings_.device);
  const Timer timer;
  for (int call = 0; call < calls; ++call) contender.run();
  finish(settings_.device);
  return timer.seconds() / calls;
}

std::vector<Timing> Runner::time(const Case& the_case) {
  const auto count = the_case.contenders.size();
  const double shortest = settings_.device.is_cpu() ? kShortestSample : kShortestOnDevice;
  std::vector<int> calls(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& contender = the_case.contenders[i];
    sample(contender, 1);  // now buffers and pools are there
    calls[i] = std::clamp(static_cast<int>(std::ceil(shortest / sample(contender, 1))), 1, 2000);
  }
  std::vector<std::vector<double>> seconds(count);
  std::vector<double> limits;
  const Timer all;
  // One sample of each in turn, starting with another one each round: what disturbs the machine disturbs all.
  for (int round = 0; round < kMostRounds; ++round) {
    if (round >= kFewestRounds && all.seconds() > settings_.budget) break;
    for (std::size_t step = 0; step < count; ++step) {
      const auto i = (step + static_cast<std::size_t>(round)) % count;
      seconds[i].push_back(sample(the_case.contenders[i], calls[i]));
    }
    const double first_seconds = seconds[0].back() * calls[0];
    limits.push_back(probe(peaks_, the_case.limit, std::clamp(first_seconds, shortest, kLongestProbe)));
    peaks_.raise(the_case.limit, limits.back());
  }
  std::vector<Timing> timings(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<double> ratios(seconds[i].size()), fractions(ratios.size());
    for (std::size_t round = 0; round < ratios.size(); ++round) {
      ratios[round] = seconds[i][round] / seconds[0][round];
      fractions[round] = limits[round] > 0 ? the_case.work / limits[round] / seconds[i][round] : 0;
    }
    timings[i].contender = the_case.contenders[i].name;
    timings[i].seconds = spread_of(seconds[i]);
    timings[i].ratio = spread_of(ratios);
    timings[i].fraction_same_round = spread_of(fractions).median;
    timings[i].rounds = static_cast<int>(seconds[i].size());
    timings[i].calls = calls[i];
    timings[i].fraction = fraction_of(peaks_.find(the_case.limit), the_case.work, timings[i].seconds.median);
  }
  return timings;
}

void Runner::run(Case the_case) {
  Row row{the_case.suite, the_case.name,  the_case.dtype,   {},
          the_case.work,  the_case.limit, settings_.threads};
  row.refusals = leave_out_refusals(the_case);
  if (the_case.check) {
    row.check = the_case.check();
  } else if (the_case.contenders.size() > 1) {
    const auto& reference = the_case.contenders[1];
    row.check = {reference.name, difference(the_case.contenders[0].run(), reference.run()),
                 the_case.allowed > 0 ? the_case.allowed : allowed_for(the_case.dtype)};
  }
  if (!row.check.passed()) {
    throw std::runtime_error(fmt::format(
        "{}: {} {}: wrong result, not timed: error {:.2e} against {}, allowed {:.0e}", the_case.suite,
        the_case.name, the_case.dtype, row.check.error, row.check.against, row.check.allowed));
  }
  row.timings = time(the_case);
  if (!settings_.quiet) print_row(row);
  rows_.push_back(std::move(row));
}

}  // namespace bench
