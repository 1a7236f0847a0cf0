#pragma once

// Memory that is written soon after it was allocated.

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace attentive {

/// Asks the system for large pages for new memory: its first use causes a page fault for every page, which
/// costs more than writing one. Contents stay as they are, and the system may refuse.
void advise_huge_pages_at(void* data, uint64_t bytes);

/// Does so for a new tensor on the CPU that is so large that the C library takes it from the system and gives
/// it back each time. Smaller ones lie in memory that was used before.
at::Tensor advise_huge_pages(at::Tensor fresh);

/// A fast 64-bit hash of a text, equal on all machines of one byte order. It is not cryptographic: it
/// protects against accidental collisions, not deliberate ones.
uint64_t digest_of(std::string_view bytes);

}  // namespace attentive
