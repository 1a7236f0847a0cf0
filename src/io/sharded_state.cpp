#include <map>
#include <set>
#include <string>

#include <fmt/format.h>

#include "io/json_value.h"
#include "io/refusal.h"
#include "io/safetensors_header.h"
#include "io/state_dict_file.h"

namespace attentive {
namespace {

struct Index {
  std::map<std::string, std::string> shard_of;  // by tensor
  TorchValue::Dict metadata;
};

// Beside the index, and nowhere else.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

TorchValue read_index_json(const std::filesystem::path& path) {
  try {
    return read_json(path, "index");
  } catch (const Refusal& refusal) {
    refuse_state(path, refusal.what());
  }
}

Index read_index(const std::filesystem::path& path) {
  const auto json = read_index_json(path);
  const auto* shards = json.is<TorchValue::Dict>() ? json.find("weight_map") : nullptr;
  if (shards == nullptr || !shards->is<TorchValue::Dict>()) {
    refuse_state(path, "expected an object with the key \"weight_map\" of an object");
  }
  Index index;
  for (const auto& [key, shard] : shards->as<TorchValue::Dict>().items) {
    const auto& tensor = key.as<std::string>();
    if (!shard.is<std::string>()) {
      refuse_state(path, fmt::format("the shard of {} is no string", quoted_name(tensor)));
    }
    if (!is_plain_name(shard.as<std::string>())) {
      refuse_state(path, fmt::format("the shard {} of {} is not the plain name of a file",
                                     quoted_name(shard.as<std::string>()), quoted_name(tensor)));
    }
    index.shard_of.emplace(tensor, shard.as<std::string>());
  }
  if (index.shard_of.empty()) refuse_state(path, "the index lists no tensors");
  for (const auto& [key, item] : json.as<TorchValue::Dict>().items) {
    if (key.as<std::string>() != "weight_map") index.metadata.items.emplace_back(key, item);
  }
  return index;
}

// A shard's tensors, each of which the index must list for it.
void take_shard(const std::filesystem::path& path, const std::string& name, const Index& index,
                const ReadStateOptions& options, StateDict& state) {
  const auto shard = read_state_file(path.parent_path() / name, options);
  if (!shard.entry.empty())
    refuse_state(path, fmt::format("shard {} is no state dict as a whole", quoted_name(name)));
  for (const auto& [key, tensor] : shard.state) {
    const auto listed = index.shard_of.find(key);
    if (listed == index.shard_of.end()) {
      refuse_state(path, fmt::format("shard {} holds {}, which the index does not list", quoted_name(name),
                                     quoted_name(key)));
    }
    if (listed->second != name) {
      refuse_state(path, fmt::format("shard {} holds {}, which the index lists in {}", quoted_name(name),
                                     quoted_name(key), quoted_name(listed->second)));
    }
    state.emplace(key, tensor);
  }
}

}  // namespace

StateDictFile read_sharded_state(const std::filesystem::path& path, const ReadStateOptions& options) {
  if (!options.entry.empty()) {
    refuse_state(path, fmt::format("an index has no entries, so none under {}", quoted_name(options.entry)));
  }
  auto index = read_index(path);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : index.shard_of) shards.insert(shard);
  StateDictFile file;
  for (const auto& shard : shards) take_shard(path, shard, index, options, file.state);
  for (const auto& [tensor, shard] : index.shard_of) {
    if (file.state.count(tensor) == 0) {
      refuse_state(path, fmt::format("shard {} lacks {}, which the index lists in it", quoted_name(shard),
                                     quoted_name(tensor)));
    }
  }
  file.prefix = wrapper_prefix(file.state);
  file.values = std::move(index.metadata);
  return file;
}

}  // namespace attentive
