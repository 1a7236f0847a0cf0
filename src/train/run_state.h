#pragma once

// Views of tensors as bytes, and of dense tensors as a one-dimensional array in memory order, as kernels
// without stride support traverse them.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <nlohmann/json_fwd.hpp>
#include <torch/nn/module.h>

#include <attentive/files/state_dict.h>
#include <attentive/train/training_group.h>

#include "core/check.h"
#include "files/state_fit.h"

namespace attentive {

/// The bytes of a CPU tensor, in memory order.
inline std::string bytes_of(const at::Tensor& tensor) {
  const auto flat = tensor.contiguous();
  return {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()};
}

/// Copies bytes to a uint8 tensor.
inline at::Tensor to_tensor(std::string bytes) {
  return at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte).clone();
}

/// A view of the elements from `begin` to `end`, in memory order.
inline at::Tensor stretch_of(const at::Tensor& dense, int64_t begin, int64_t end) {
  return dense.as_strided({end - begin}, {1}, dense.storage_offset() + begin);
}

/// The tensor with these strides: the tensor itself, or a copy.
inline at::Tensor with_strides(const at::Tensor& tensor, at::IntArrayRef strides) {
  if (tensor.strides() == strides) return tensor;
  return at::empty_strided(tensor.sizes(), strides, tensor.options()).copy_(tensor);
}

inline at::Tensor generator_state(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

/// Throws unless this generator accepts `state`.
inline void check_generator_state(const char* caller, const at::Generator& generator,
                                  const at::Tensor& state) {
  const auto expected = generator_state(generator);
  const auto* kind = generator.device().is_cpu() ? "CPU" : "CUDA";
  const auto like = [&](const at::Tensor& x) {
    return x.defined() && x.sizes() == expected.sizes() && x.scalar_type() == at::kByte && x.is_cpu();
  };
  TORCH_CHECK_VALUE(like(state), caller, ": expected the state of a ", kind, " generator (", expected.numel(),
                    " bytes), got ", describe(state));
  try {
    generator.clone().set_state(state.contiguous());
  } catch (const c10::Error&) {
    TORCH_CHECK_VALUE(false, caller, ": expected the state of a ", kind, " generator, got other bytes");
  }
}

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

/// The default generators that dropout uses on a device, by kind of device: "cpu", "cuda".
std::map<std::string, at::Generator> dropout_generators(at::Device device);

/// Derives a seed that differs from `seed`, and from the seeds for other n.
uint64_t derived_seed(uint64_t seed, uint64_t n);

/// Gives each rank > 0 dropout of its own, given that all processes have the seed of rank 0.
void seed_by_rank(at::Device device, int64_t rank);

/// Collective. The states of these generators in every process: a list with an object for each rank, which
/// holds hexadecimal texts by kind of device.
nlohmann::json gather_generator_states(TrainingGroup& group, at::Device device);

/// The changes to this process's generators when a checkpoint is restored.
struct DropoutRestore {
  std::vector<std::pair<at::Generator, at::Tensor>> states = {};
  /// Used if the checkpoint has no state for this rank.
  std::vector<std::pair<at::Generator, uint64_t>> seeds = {};
  std::vector<std::string> remarks = {};

  void apply();
};

/// Reads the list, or the single object that versions without groups wrote. Changes nothing. Throws
/// c10::ValueError or nlohmann::json::exception if a state is invalid. fresh_seed: for ranks that the
/// checkpoint does not have.
DropoutRestore read_generator_states(const char* caller, const nlohmann::json& saved,
                                     const TrainingGroup& group, at::Device device, uint64_t fresh_seed);

}  // namespace attentive
