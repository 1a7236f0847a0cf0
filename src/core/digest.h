#pragma once

#include <cstdint>
#include <string_view>

namespace attentive {

// A number that tells texts apart, the same on every machine of one byte order. It is quick, and withstands chance, not malice.
uint64_t digest_of(std::string_view bytes);

}  // namespace attentive
