#pragma once

#include <functional>

namespace bench {

/// The peak increase of the process's resident memory, in bytes, while `work` runs; -1 if the kernel does not
/// report it. Freed memory is returned to the system first, so that reused memory counts too.
double peak_growth(const std::function<void()>& work);

/// The peak of the process's resident memory, in bytes, since it started or `peak_growth` was called; -1 if
/// the kernel does not report it.
double peak_bytes();

/// The peak increase of the bytes of CPU tensors, in bytes, while `work` runs in this thread, backward passes
/// included.
double peak_tensor_growth(const std::function<void()>& work);

}  // namespace bench
