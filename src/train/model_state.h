#pragma once

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <attentive/files/state_dict.h>

#include "core/check.h"
#include "files/state_fit.h"

namespace attentive {

/// Throws unless the weights of a checkpoint fit strictly. Unlike load_state_dict, does not convert dtypes,
/// because a checkpoint belongs to this very model.
inline void check_model_state(const char* caller, const torch::nn::Module& model, const StateDict& saved) {
  for (const auto& [name, parameter] : state_dict(model)) {
    const auto found = saved.find(name);
    TORCH_CHECK_VALUE(found == saved.end() || !found->second.defined() ||
                          found->second.scalar_type() == parameter.scalar_type(),
                      caller, ": expected \"", name, "\" of dtype ", parameter.scalar_type(), ", got ",
                      found->second.scalar_type());
  }
  check_state_dict(model, saved);
}

/// Throws unless a user's loss function returned a single number.
inline void check_loss(const char* caller, const at::Tensor& loss) {
  TORCH_CHECK_VALUE(loss.defined() && !loss.is_meta() && loss.numel() == 1, caller,
                    ": expected a loss function that returns one number, got ", describe(loss));
}

inline void load_model_state(const char* caller, torch::nn::Module& model, const StateDict& saved) {
  check_model_state(caller, model, saved);
  load_state_dict(model, saved);
}

}  // namespace attentive
