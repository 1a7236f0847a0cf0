#pragma once

// Counts the bytes that tensors take on the CPU, so that a test can state how memory grows.

#include <algorithm>
#include <atomic>
#include <memory>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace attentive::test {

// While it lives, the allocator reports every CPU tensor's bytes of this thread (and of a backward it
// starts).
class MemoryMeter {
 public:
  // Highest number of bytes held at one time beyond what was held at the beginning.
  int64_t peak() const { return counter_->peak; }

 private:
  struct Counter : c10::MemoryReportingInfoBase {
    using c10::MemoryReportingInfoBase::reportMemoryUsage;
    void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device device) override {
      if (!device.is_cpu()) return;
      now += size;
      peak = std::max(peak, now);
    }
    bool memoryProfilingEnabled() const override { return true; }
    int64_t now = 0;
    int64_t peak = 0;
  };

  std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, counter_};
};

}  // namespace attentive::test
