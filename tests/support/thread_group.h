#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <attentive/train/training_group.h>

namespace attentive::test {

/// Runs `work` on `size` threads at once, each with its rank in one group, and returns for each rank the
/// message of the error that it threw, without a backtrace, or "no error".
///
/// After a thread has ended, the calls of the others throw instead of waiting forever. Gradients are summed
/// in the order of ranks. Assertions belong after the call, because Catch2's are not thread-safe.
std::vector<std::string> run_threads(int64_t size,
                                     const std::function<void(std::shared_ptr<TrainingGroup>)>& work);

}  // namespace attentive::test
