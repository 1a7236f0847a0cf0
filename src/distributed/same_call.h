#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "distributed/connection.h"

namespace attentive::distributed {

/// Begins a public call: the processes exchange a message of 16 bytes, the same size for every call, by which
/// they check that they all make the same one. Nothing whose size depends on the call is sent before. A
/// single process sends nothing.
///
/// `arguments` checks this process's arguments and returns what must be the same in all processes, one line
/// for each item. If it throws, this process's call is refused. Throws c10::ValueError in all processes if
/// their calls or `things` differ, or if only some calls are refused; the message names the rank. If all
/// calls are refused alike, throws what `arguments` has thrown. After these errors the group remains usable.
/// Throws PeerError if another process is missing.
void begin_call(Connection& connection, const char* caller, const char* things,
                const std::function<std::string()>& arguments);

/// The parts of a model that matter for data parallel training.
struct ModelParts {
  std::vector<at::Tensor> state;      ///< every parameter and buffer, shared ones once
  std::vector<at::Tensor> trainable;  ///< parameters that require a gradient, shared ones once
  std::vector<std::string> names;     ///< the names of `trainable`
  std::vector<std::pair<std::string, at::Tensor>> frozen;  ///< parameters and buffers that require none
  std::string text;  ///< one line for each name and option; must be the same in all processes
};

/// device: the group's device. The text records which tensors are on the CPU, on that device, or elsewhere.
ModelParts model_parts(const torch::nn::Module& model, const at::Device& device);

}  // namespace attentive::distributed
