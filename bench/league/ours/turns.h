#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

namespace league {

using Json = nlohmann::json;

/// The functions that answer a line of the protocol (bench/league/README.md), by the name in its field "do".
using Commands = std::map<std::string, std::function<Json(const Json&)>>;

/// The commands `inputs`, `prepare` and `sample`.
Commands attention_commands();
/// The commands `load`, `continued` and `logits`.
Commands model_commands();

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace league
