#pragma once

#include <string>
#include <utility>
#include <vector>

#include <attentive/train/training_group.h>

namespace attentive {

// Collective. Throws c10::ValueError in every process unless each of these texts, named for the message, is
// the same in all of them.
void check_agreement(const char* who, TrainingGroup& group,
                     const std::vector<std::pair<std::string, std::string>>& texts);

}  // namespace attentive
