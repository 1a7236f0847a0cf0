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

// The default generators that dropout draws from on a device, by its kind: "cpu", "cuda".
std::map<std::string, at::Generator> dropout_generators(at::Device device);

// A seed that differs from `seed` and from those of other numbers n.
uint64_t derived_seed(uint64_t seed, uint64_t n);

// Gives a process of rank > 0 dropout of its own, where all have the seed of rank 0.
void seed_by_rank(at::Device device, int64_t rank);

// Collective. The states of these generators in every process: a list with an object per rank, hexadecimal
// texts by kind of device.
nlohmann::json gather_generator_states(TrainingGroup& group, at::Device device);

// What a process does with its dropout when it takes up a checkpoint.
struct DropoutRestore {
  std::vector<std::pair<at::Generator, at::Tensor>> states = {};
  std::vector<std::pair<at::Generator, uint64_t>> seeds =
      {};  // where the checkpoint has no state for this rank
  std::vector<std::string> remarks = {};

  void apply();
};

// Reads the list, or the object that a program without groups wrote. Changes nothing. Throws c10::ValueError
// or nlohmann::json::exception if a state is not one. fresh_seed: for the ranks that the checkpoint does not
// have.
DropoutRestore read_generator_states(const char* who, const nlohmann::json& saved, const TrainingGroup& group,
                                     at::Device device, uint64_t fresh_seed);

}  // namespace attentive
