#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <attentive/accelerate.h>

#include "accelerate/sdpa_call.h"

namespace attentive {

using accelerate::sdpa_switch;
using accelerate::Switch;

namespace {

Switch switch_for(const SdpaOptions& options) {
  return options.dropout == SdpaDropout::Exact ? Switch::ExactDropout : Switch::OurDropout;
}

}  // namespace

void accelerate_sdpa(const SdpaOptions& options) {
  // If it throws, the next call tries again.
  [[maybe_unused]] static const bool registered = (accelerate::register_sdpa_operators(), true);
  sdpa_switch() = switch_for(options);
}

void stop_accelerating_sdpa() {
  sdpa_switch() = Switch::Off;
}

bool accelerates_sdpa() {
  return sdpa_switch() != Switch::Off;
}

SdpaGuard::SdpaGuard(const SdpaOptions& options) : accelerated_(accelerates_sdpa()) {
  if (sdpa_switch() == Switch::ExactDropout) options_.dropout = SdpaDropout::Exact;
  accelerate_sdpa(options);
}

SdpaGuard::~SdpaGuard() {
  sdpa_switch() = accelerated_ ? switch_for(options_) : Switch::Off;
}

namespace accelerate {
namespace {

// The calls that were left for one reason. A reason stays in its place once it has been set.
struct Count {
  std::atomic<const std::string*> reason{nullptr};
  std::atomic<int64_t> calls{0};
};

// There are fewer than thirty reasons; the last place would count those beyond.
constexpr size_t kPlaces = 48;
std::array<Count, kPlaces> left_calls;
std::atomic<int64_t> taken_calls{0};
thread_local LeavingCall* innermost = nullptr;

// The place of a reason, which is taken if need be.
Count& place_of(const std::string& reason) {
  for (auto& place : left_calls) {
    const std::string* known = place.reason.load(std::memory_order_acquire);
    if (!known) {
      auto fresh = std::make_unique<const std::string>(reason);
      if (place.reason.compare_exchange_strong(known, fresh.get(), std::memory_order_acq_rel)) {
        fresh.release();  // it stays until the process ends
        return place;
      }
    }
    if (*known == reason) return place;
  }
  return left_calls.back();
}

}  // namespace

void count_taken() {
  taken_calls.fetch_add(1, std::memory_order_relaxed);
  if (innermost) innermost->taken_ = true;
}

void count_left(const std::string& reason) {
  if (!innermost) place_of(reason).calls.fetch_add(1, std::memory_order_relaxed);
}

LeavingCall::LeavingCall(std::string reason)
    : reason_(std::move(reason)), outer_(std::exchange(innermost, this)) {}
LeavingCall::~LeavingCall() {
  innermost = outer_;
  if (!taken_) count_left(reason_);
}

}  // namespace accelerate

SdpaReport sdpa_report() {
  SdpaReport report;
  report.taken = accelerate::taken_calls.load(std::memory_order_relaxed);
  for (const auto& place : accelerate::left_calls) {
    const auto* reason = place.reason.load(std::memory_order_acquire);
    const auto calls = place.calls.load(std::memory_order_relaxed);
    if (reason && calls > 0) report.left.push_back({*reason, calls});
  }
  std::stable_sort(report.left.begin(), report.left.end(),
                   [](const auto& a, const auto& b) { return a.calls > b.calls; });
  return report;
}

void reset_sdpa_report() {
  accelerate::taken_calls = 0;
  for (auto& place : accelerate::left_calls) place.calls = 0;
}

std::string to_string(const SdpaReport& report) {
  int64_t left = 0;
  for (const auto& one : report.left) left += one.calls;
  auto text = fmt::format("{:>9} taken\n{:>9} left to PyTorch\n", report.taken, left);
  for (const auto& one : report.left) text += fmt::format("{:>9}   {}\n", one.calls, one.reason);
  return text;
}

}  // namespace attentive
