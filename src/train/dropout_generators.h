#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <nlohmann/json_fwd.hpp>

#include <attentive/train/training_group.h>

namespace attentive {

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
