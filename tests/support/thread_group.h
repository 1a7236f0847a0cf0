#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <attentive/train/training_group.h>

namespace attentive::test {

// Runs `work` on as many threads at once, each with its place in one group, and returns by rank the message
// of the error that it ended in, without a backtrace, or "no error".
//
// A thread that has ended is missing to the others: their calls throw, and nothing waits for ever. Gradients
// are summed in the order of ranks. Assertions belong behind the call: Catch2's are not made for threads.
std::vector<std::string> run_threads(int64_t size,
                                     const std::function<void(std::shared_ptr<TrainingGroup>)>& work);

}  // namespace attentive::test
