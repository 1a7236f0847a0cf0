#include "distributed/c10d_backends.h"

#include <thread>

namespace attentive::c10d_internals {

// NCCL's own wait() either returns at once and only makes later work on the device wait, or it blocks. When
// it blocks, it aborts NCCL after a failure, which may never return, and it does not notice that another
// process has told the group why it ends. So this thread polls instead.
void wait_for_device(c10d::Work& work, const Collectives::Options& options) {
  constexpr int64_t kBusyLooks = 2000;  // most calls finish sooner than a sleep would
  constexpr std::chrono::microseconds kPause{50};
  const auto end = std::chrono::steady_clock::now() + options.timeout;
  for (int64_t looks = 0; !work.isCompleted(); ++looks) {
    TORCH_CHECK(!options.given_up(), "the group has ended");
    TORCH_CHECK(std::chrono::steady_clock::now() < end, "timed out after ", options.timeout.count(),
                " ms on ", options.device);
    if (looks >= kBusyLooks) std::this_thread::sleep_for(kPause);
  }
  if (const auto error = work.exception()) std::rethrow_exception(error);
  work.synchronize();  // releases the memory that c10d has kept for the call
}

Backends::~Backends() {
  if (!nccl) return;
  try {
    nccl->shutdown();  // otherwise the destructor of a backend would abort what the device still sends
  } catch (const std::exception&) {
    static_cast<void>(nccl.release());  // this process ends in any case; nothing is destroyed
  }
}

void Backends::wait(c10d::Work& work, const at::Tensor& tensor) const {
  if (tensor.is_cuda()) {
    wait_for_device(work, options);
  } else {
    work.wait();
  }
}

}  // namespace attentive::c10d_internals
