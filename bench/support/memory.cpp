#include "support/memory.h"

#include <algorithm>
#include <fstream>
#include <malloc.h>
#include <memory>
#include <string>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace bench {
namespace {

double status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return 1024.0 * std::stod(line.substr(key.size()));
  }
  return -1;
}

struct TensorBytes : c10::MemoryReportingInfoBase {
  using c10::MemoryReportingInfoBase::reportMemoryUsage;
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device device) override {
    if (device.is_cpu()) peak = std::max(peak, now += size);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0, peak = 0;
};

}  // namespace

double peak_growth(const std::function<void()>& work) {
  malloc_trim(0);
  // Writing 5 resets the peak, VmHWM, to VmRSS.
  if (std::ofstream reset("/proc/self/clear_refs"); !(reset << "5" << std::flush)) return -1;
  const double before = status_bytes("VmRSS:");
  work();
  const double highest = peak_bytes();
  return before < 0 || highest < 0 ? -1 : highest - before;
}

double peak_bytes() {
  return status_bytes("VmHWM:");
}

double peak_tensor_growth(const std::function<void()>& work) {
  const auto bytes = std::make_shared<TensorBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, bytes);
  work();
  return static_cast<double>(bytes->peak);
}

}  // namespace bench
