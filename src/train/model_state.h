#pragma once

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <attentive/files/state_dict.h>

#include "core/check.h"
#include "files/state_entries.h"

namespace attentive {

// Throws unless the weights of a checkpoint fit: strictly, and unlike load_state_dict without casting, for a
// checkpoint is this very model's.
inline void check_model_state(const char* who, const torch::nn::Module& model, const StateDict& saved) {
  for (const auto& [name, own] : state_dict(model)) {
    const auto found = saved.find(name);
    TORCH_CHECK_VALUE(
        found == saved.end() || !found->second.defined() || found->second.scalar_type() == own.scalar_type(),
        who, ": expected \"", name, "\" of dtype ", own.scalar_type(), ", got ", found->second.scalar_type());
  }
  check_state_dict(model, saved);
}

// Throws unless a user's loss function returned one number.
inline void check_loss(const char* who, const at::Tensor& loss) {
  TORCH_CHECK_VALUE(loss.defined() && !loss.is_meta() && loss.numel() == 1, who,
                    ": expected a loss function that returns one number, got ", describe(loss));
}

inline void load_model_state(const char* who, torch::nn::Module& model, const StateDict& saved) {
  check_model_state(who, model, saved);
  load_state_dict(model, saved);
}

}  // namespace attentive
