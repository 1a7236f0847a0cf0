#pragma once

#include <cstdint>
#include <string_view>

namespace attentive {

/// A fast 64-bit hash of a text, equal on all machines of one byte order. It is not cryptographic: it
/// protects against accidental collisions, not deliberate ones.
uint64_t digest_of(std::string_view bytes);

}  // namespace attentive
