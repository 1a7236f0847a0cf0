#pragma once

#include <functional>

namespace bench {

/// Bytes by which the process's resident memory grew at its highest while `work` ran; -1 where the kernel
/// does not say. Freed memory is given back first, so that reused memory counts too.
double peak_growth(const std::function<void()>& work);

}  // namespace bench
