#pragma once

#include <cstddef>
#include <functional>

namespace attentive::tokenizers {

/// Calls `work(thread, text)` for 0 <= text < count on at most so many threads, of which this one is thread 0. Throws what the
/// first text throws that throws, whichever thread takes it; a Refusal is then named `texts[17]: ...`.
void for_each_text(size_t count, size_t threads, const std::function<void(size_t thread, size_t text)>& work);

}  // namespace attentive::tokenizers
