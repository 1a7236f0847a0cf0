#pragma once

#include <functional>
#include <string>

#include "distributed/connection.h"

namespace attentive::distributed {

/// Begins a public call: the processes exchange a message of 16 bytes, the same size for every call, by which
/// they check that they all make the same one. Nothing whose size depends on the call is sent before. A
/// single process sends nothing.
///
/// `arguments` checks this process's arguments and returns what must be the same in all processes, one line
/// for each item. If it throws, this process's call is refused. Throws c10::ValueError in all processes if
/// their calls or `things` differ, or if only some calls are refused; the message names the rank. If all
/// calls are refused alike, throws what `arguments` has thrown. After these errors the group remains usable.
/// Throws PeerError if another process is missing.
void begin_call(Connection& connection, const char* caller, const char* things,
                const std::function<std::string()>& arguments);

}  // namespace attentive::distributed
