#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace attentive::test {

/// Returns why `peak_memory` does not work here; nothing if it works.
std::optional<std::string> why_no_peak_memory();

/// Runs `call` and returns the number of bytes by which the peak of the resident memory of this process
/// exceeded its value before. (Linux; touched pages of mapped files count.)
size_t peak_memory(const std::function<void()>& call);

/// Runs `call` while this process may map at most `more` additional bytes; larger allocations fail.
void with_address_space(size_t more, const std::function<void()>& call);

}  // namespace attentive::test
