#pragma once

#include <memory>
#include <string>

#include <attentive/distributed/group.h>

namespace attentive::test {

/// Calls that differ between the processes are refused by all with c10::ValueError, and the group goes on. Throws std::runtime_error
/// otherwise, as do the others.
void check_calls_that_differ(const std::shared_ptr<Group>& group);
/// The same of attention over the processes.
void check_context_calls_that_differ(const std::shared_ptr<Group>& group);
/// The first process makes two backward passes in another order than the rest.
void make_passes_in_other_orders(const std::shared_ptr<Group>& group, const std::string& method);
/// What Group::sum takes, it sums exactly; the rest it refuses by name.
void check_sums(const std::shared_ptr<Group>& group);
/// A backward pass gives the same bits whether it is the first one of DataParallel or a later one.
void check_same_gradients(const std::shared_ptr<Group>& group);

}  // namespace attentive::test
