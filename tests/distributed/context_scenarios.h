#pragma once

#include <memory>
#include <string>

#include <attentive/distributed/group.h>

namespace attentive::test {

/// The scenarios of a process in the tests of context_attention; throws std::runtime_error with the reason of
/// a failure.
///   same METHOD   every option against one process, forward and backward
///   gpt METHOD    a GPT's loss and gradients against one process
///   memory "METHOD T"   prints the most memory of a pass over T tokens, alone and with the others
///   refused       what all processes refuse
///   for_ever      ring attention until somebody is missing
void context_scenario(const std::shared_ptr<Group>& group, const std::string& what,
                      const std::string& detail);

}  // namespace attentive::test
