#include "distributed/environment.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>

#include <c10/util/Exception.h>
#include <fmt/format.h>

namespace attentive::distributed {
namespace {

constexpr const char* kRemedy = "start the program with torchrun, or set it as torchrun does";

const char* text_of(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

int64_t number(const char* name, const char* text, int64_t least, int64_t most) {
  int64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  TORCH_CHECK_VALUE(error == std::errc() && stop == end && value >= least && value <= most,
                    "Group::join: expected a number from ", least, " to ", most, " in ", name, ", got \"",
                    text, "\"; ", kRemedy);
  return value;
}

// Reads a variable that is required because another one, `given`, is set.
const char* required(const char* name, const char* given) {
  const char* text = text_of(name);
  TORCH_CHECK_VALUE(text != nullptr, "Group::join: ", given, " is set, but ", name, " is not; ", kRemedy,
                    ", or unset RANK and WORLD_SIZE to run one process");
  return text;
}

}  // namespace

std::string Environment::store() const {
  return fmt::format("MASTER_ADDR:MASTER_PORT {}:{}", master_address, master_port);
}

Environment read_environment() {
  Environment environment;
  const char* rank = text_of("RANK");
  const char* size = text_of("WORLD_SIZE");
  if (rank == nullptr && size == nullptr) return environment;
  rank = required("RANK", "WORLD_SIZE");
  size = required("WORLD_SIZE", "RANK");

  environment.size = number("WORLD_SIZE", size, 1, std::numeric_limits<int32_t>::max());
  environment.rank = number("RANK", rank, 0, std::numeric_limits<int32_t>::max());
  TORCH_CHECK_VALUE(environment.rank < environment.size, "Group::join: RANK is ", environment.rank,
                    ", but WORLD_SIZE ", environment.size, " leaves ranks 0 to ", environment.size - 1, "; ",
                    kRemedy);
  if (const char* local = text_of("LOCAL_RANK")) {
    environment.local_rank = number("LOCAL_RANK", local, 0, std::numeric_limits<int32_t>::max());
    TORCH_CHECK_VALUE(environment.local_rank < environment.size, "Group::join: LOCAL_RANK of rank ",
                      environment.rank, " is ", environment.local_rank, ", but there are ", environment.size,
                      " processes (WORLD_SIZE); ", kRemedy);
  }
  if (environment.alone()) return environment;

  environment.master_address = required("MASTER_ADDR", "RANK");
  environment.master_port = static_cast<uint16_t>(
      number("MASTER_PORT", required("MASTER_PORT", "RANK"), 1, std::numeric_limits<uint16_t>::max()));
  const char* agent = text_of("TORCHELASTIC_USE_AGENT_STORE");
  environment.agent_serves = agent != nullptr && std::string(agent) == "True";
  if (const char* restarts = text_of("TORCHELASTIC_RESTART_COUNT")) {
    environment.restarts =
        number("TORCHELASTIC_RESTART_COUNT", restarts, 0, std::numeric_limits<int32_t>::max());
  }
  return environment;
}

}  // namespace attentive::distributed
