#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

#include <attentive/modules/module.h>

#include "core/kept_tensors.h"

namespace attentive {
RandomStateGuard::RandomStateGuard() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  state_ = generator.get_state();
}

RandomStateGuard::~RandomStateGuard() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state_);
}

void detail::build_module(const char* name, const std::function<void()>& reset) {
  reserving(name, "its parameters", reset);
}

void detail::fail_empty_holder(const char* name) {
  TORCH_CHECK_VALUE(false, name,
                    ": expected a holder with a module, got an empty one, made from nullptr; assign ", name,
                    "(...) to it first");
}

}  // namespace attentive
