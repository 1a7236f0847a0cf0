#pragma once

// Counts the bytes of CPU tensors, so that a test can check how memory grows.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace attentive::test {

/// For its lifetime, the allocator reports the bytes of every CPU tensor of this thread, and of the backward
/// passes that this thread starts.
class MemoryMeter {
 public:
  /// The largest number of bytes held at one time, beyond those held at the beginning.
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

/// Returns why `peak_memory` does not work here; nothing if it works.
std::optional<std::string> why_no_peak_memory();

/// Runs `call` and returns the number of bytes by which the peak of the resident memory of this process
/// exceeded its value before. (Linux; touched pages of mapped files count.)
size_t peak_memory(const std::function<void()>& call);

/// Runs `call` while this process may map at most `more` additional bytes; larger allocations fail.
void with_address_space(size_t more, const std::function<void()>& call);

}  // namespace attentive::test
