#pragma once

#include <cstddef>

namespace attentive {

/// True if every byte is 0 or 1: any other one is no bool in C++.
bool are_bools(const void* data, size_t size);

}  // namespace attentive
