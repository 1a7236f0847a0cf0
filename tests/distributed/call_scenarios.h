#pragma once

#include <memory>
#include <string>

#include <attentive/distributed/group.h>

namespace attentive::test {

/// Calls that differ between the processes are refused by all of them with c10::ValueError, and the group
/// remains usable. This function and the next ones throw std::runtime_error otherwise.
void check_calls_that_differ(const std::shared_ptr<Group>& group);
/// Checks the same for attention over the processes.
void check_context_calls_that_differ(const std::shared_ptr<Group>& group);
/// Lets the first process run two backward passes in another order than the rest.
void make_passes_in_other_orders(const std::shared_ptr<Group>& group, const std::string& method);
/// Group::sum adds the supported dtypes exactly and refuses all others by name.
void check_sums(const std::shared_ptr<Group>& group);
/// A backward pass gives the same bits whether it is the first one of DataParallel or a later one.
void check_same_gradients(const std::shared_ptr<Group>& group);

}  // namespace attentive::test
