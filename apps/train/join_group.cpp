#include "join_group.h"

#include <cstdlib>

#ifdef ATTENTIVE_DISTRIBUTED

#include <attentive/distributed/group.h>

Joined join_group(c10::DeviceType kind, std::chrono::seconds timeout) {
  auto group = attentive::Group::join({.device = kind, .timeout = timeout});
  const auto device = group->device();
  return {std::move(group), device};
}

void report_to_group(const std::exception& error) noexcept {
  attentive::report_failure(error);
}

#else

#include <string_view>

#include <c10/util/Exception.h>

Joined join_group(c10::DeviceType kind, std::chrono::seconds) {
  for (const auto& [name, alone] : {std::pair("WORLD_SIZE", "1"), std::pair("RANK", "0")}) {
    const char* value = std::getenv(name);
    TORCH_CHECK_VALUE(
        !value || std::string_view(value) == alone, "expected one process, got ", name, "=", value,
        ": this program was built without the component distributed, which needs LibTorch 2.11");
  }
  return {nullptr, c10::Device(kind, kind == c10::kCPU ? -1 : 0)};
}

void report_to_group(const std::exception&) noexcept {}

#endif

bool on_one_machine(const attentive::TrainingGroup* group) {
  if (group == nullptr || group->size() == 1) return true;
  const char* here = std::getenv("LOCAL_WORLD_SIZE");
  return here != nullptr && std::atoll(here) == group->size();
}

bool started_again() {
  const char* restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return restarts != nullptr && std::atoi(restarts) > 0;
}
