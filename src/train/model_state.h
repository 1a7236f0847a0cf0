#pragma once

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <attentive/io/state_dict.h>

namespace attentive {

// Loads the weights of a checkpoint: strictly, and unlike load_state_dict without casting, for a checkpoint
// is this very model's.
inline void load_model_state(const char* who, torch::nn::Module& model, const StateDict& saved) {
  for (const auto& [name, own] : state_dict(model)) {
    const auto found = saved.find(name);
    TORCH_CHECK_VALUE(found == saved.end() || found->second.scalar_type() == own.scalar_type(), who,
                      ": expected \"", name, "\" of dtype ", own.scalar_type(), ", got ",
                      found->second.scalar_type());
  }
  load_state_dict(model, saved);
}

}  // namespace attentive
