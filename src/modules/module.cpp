#include <mutex>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Type.h>

#include <attentive/modules/module.h>

#include "core/kept_tensors.h"

namespace attentive {
namespace {

// "MultiHeadAttention" of attentive::MultiHeadAttentionImpl; another namespace than this one is kept.
std::string public_name(const std::type_info& type) {
  auto name = c10::demangle(type.name());
  if (name.starts_with("attentive::")) name.erase(0, std::string("attentive::").size());
  if (name.ends_with("Impl")) name.resize(name.size() - std::string("Impl").size());
  return name;
}

}  // namespace

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

void detail::build_module(const std::type_info& type, const std::function<void()>& reset) {
  reserving(public_name(type), "its parameters", reset);
}

void detail::fail_empty_holder(const std::type_info& type) {
  const auto name = public_name(type);
  TORCH_CHECK_VALUE(false, name,
                    ": expected a holder with a module, got an empty one, made from nullptr; assign ", name,
                    "(...) to it first");
}

}  // namespace attentive
