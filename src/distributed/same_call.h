#pragma once

#include <functional>
#include <string>

#include "distributed/connection.h"

namespace attentive::distributed {

/// The beginning of every public call: the processes exchange a message of 16 bytes, the same size in all calls, by which they see
/// that they make the same one, before anything is sent whose size depends on it. A process alone sends nothing.
///
/// `arguments` checks those of this process, and returns what must be the same in all of them, a line each. If it throws, the call
/// of this process is refused. The group goes on after what this function throws: c10::ValueError in all processes if their
/// calls or `things` differ, or if some are refused, in a message that names the rank; what `arguments` has thrown, if all are
/// refused alike; PeerError.
void begin_call(Connection& connection, const char* who, const char* things,
                const std::function<std::string()>& arguments);

}  // namespace attentive::distributed
