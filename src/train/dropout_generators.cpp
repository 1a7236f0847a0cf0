#include <algorithm>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "train/run_state.h"

namespace attentive {
namespace {

std::string kind_of(at::Device device) {
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

// The state for a kind of device, or null; versions without groups wrote "cuda:0" for "cuda".
const nlohmann::json* find_state(const nlohmann::json& saved, const std::string& kind) {
  for (const auto& [name, state] : saved.items()) {
    if (name == kind || name.starts_with(kind + ':')) return &state;
  }
  return nullptr;
}

void set_seed(at::Generator generator, uint64_t seed) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

std::string processes(size_t count) {
  return count == 1 ? "one process" : fmt::format("{} processes", count);
}

}  // namespace

std::map<std::string, at::Generator> dropout_generators(at::Device device) {
  std::map<std::string, at::Generator> generators;
  for (const auto where : {at::Device(at::kCPU), device}) {
    generators.emplace(kind_of(where), at::globalContext().defaultGenerator(where));
  }
  return generators;
}

uint64_t derived_seed(uint64_t seed, uint64_t n) {
  // The output function of SplitMix64: steps of an odd constant, then shifts and products that are
  // bijections. The CPU's generator uses only the low half, so every input bit must affect it.
  uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

void seed_by_rank(at::Device device, int64_t rank) {
  if (rank == 0) return;
  for (auto& [kind, generator] : dropout_generators(device)) {
    set_seed(generator, derived_seed(generator.current_seed(), static_cast<uint64_t>(rank)));
  }
}

nlohmann::json gather_generator_states(TrainingGroup& group, at::Device device) {
  const auto generators = dropout_generators(device);
  std::vector<at::Tensor> local_states;
  for (const auto& [kind, generator] : generators) local_states.push_back(generator_state(generator));
  auto ranks = nlohmann::json::array();
  for (const auto& states : group.gather(at::cat(local_states))) {
    nlohmann::json rank;
    int64_t begin = 0;
    auto like = local_states.begin();
    for (const auto& [kind, generator] : generators) {
      const auto size = (like++)->numel();
      rank[kind] = to_hex(bytes_of(states.narrow(0, begin, size)));
      begin += size;
    }
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

DropoutRestore read_generator_states(const char* caller, const nlohmann::json& saved,
                                     const TrainingGroup& group, at::Device device, uint64_t fresh_seed) {
  const auto ranks = saved.is_array() ? saved : nlohmann::json::array({saved});
  const auto rank = static_cast<size_t>(group.rank());
  DropoutRestore restore;
  if (ranks.size() != static_cast<size_t>(group.size())) {
    restore.remarks.push_back(
        fmt::format("the checkpoint was made by {}, this run has {}: dropout goes on with other bits",
                    processes(ranks.size()), processes(static_cast<size_t>(group.size()))));
  }
  for (auto& [kind, generator] : dropout_generators(device)) {
    if (rank >= ranks.size()) {
      restore.seeds.emplace_back(generator, derived_seed(fresh_seed, rank));
    } else if (const auto* state = find_state(ranks[rank], kind)) {
      restore.states.emplace_back(generator, to_tensor(from_hex(caller, state->get<std::string>())));
      check_generator_state(caller, generator, restore.states.back().second);
    } else {
      restore.remarks.push_back("the checkpoint has no generator state for " + kind +
                                ": dropout starts over there");
    }
  }
  return restore;
}

void DropoutRestore::apply() {
  for (auto& [generator, state] : states) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }
  for (auto& [generator, seed] : seeds) set_seed(generator, seed);
}

}  // namespace attentive
