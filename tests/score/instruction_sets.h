#pragma once

// The instruction sets of the native kernel that this CPU has.

#include <functional>
#include <string>

namespace attentive::test {

/// Runs `check` once for each set; the native kernel uses that set meanwhile.
void for_each_instruction_set(const std::function<void(const std::string& name)>& check);

}  // namespace attentive::test
