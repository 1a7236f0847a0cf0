#pragma once

#include <cstddef>
#include <functional>

namespace attentive::tokenizers {

/// Calls `work(thread, text)` for 0 <= text < count on at most `threads` threads, of which the caller's is
/// thread 0. If calls throw, rethrows the exception of the first such text, whichever thread took it; a
/// Refusal is then named `texts[17]: ...`.
void for_each_text(size_t count, size_t threads, const std::function<void(size_t thread, size_t text)>& work);

}  // namespace attentive::tokenizers
