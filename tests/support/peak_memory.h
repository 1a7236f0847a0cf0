#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace attentive::test {

/// Why `peak_memory` would mean nothing here; nothing if it works.
std::optional<std::string> why_no_peak_memory();

/// By how many bytes the resident memory of this process rose above what it was, at its highest, while `call`
/// ran. (Linux; pages of a mapped file that were touched count.)
size_t peak_memory(const std::function<void()>& call);

/// Runs `call` while this process may map at most `more` bytes beyond what it has: what asks for more gets no
/// memory.
void with_address_space(size_t more, const std::function<void()>& call);

}  // namespace attentive::test
