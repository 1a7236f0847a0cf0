#include <mutex>

#include <ATen/CPUGeneratorImpl.h>

#include <attentive/modules/module.h>

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

}  // namespace attentive
