#include "files/state_dict_file.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>

#include <attentive/files/safetensors.h>

#include "base/files.h"
#include "base/refusal.h"
#include "files/byte_source.h"
#include "files/json_value.h"
#include "files/state_entries.h"

namespace attentive {
namespace {

constexpr std::string_view kIndexEnding = ".index.json";

bool is_index(const std::filesystem::path& path) {
  const auto name = path.filename().string();
  return name.size() > kIndexEnding.size() &&
         name.compare(name.size() - kIndexEnding.size(), std::string::npos, kIndexEnding) == 0;
}

// Finds the one file of a folder that holds a model's state dict, or the index of a sharded one.
std::filesystem::path find_in(const std::filesystem::path& folder) {
  std::string found;
  std::filesystem::path result;
  int count = 0;
  for (const auto* name : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                           "pytorch_model.bin.index.json"}) {
    if (!is_there(folder / name)) continue;
    result = folder / name;
    found += fmt::format("{}{}", count++ > 0 ? ", " : "", name);
  }
  if (count == 0) refuse_state(folder, "the folder holds no state dict under a name that is known");
  if (count > 1) refuse_state(folder, fmt::format("the folder holds {}: name one of them", found));
  return result;
}

std::string list_of(const std::vector<StateEntry>& entries) {
  constexpr size_t kMost = 10;
  std::string text;
  for (size_t i = 0; i < entries.size() && i < kMost; ++i) {
    text += fmt::format("{}{}", i > 0 ? ", " : "", quoted_name(entries[i].path));
  }
  return entries.size() > kMost ? text + fmt::format(", and {} more", entries.size() - kMost) : text;
}

// The entry that the caller named, or the only plausible one.
const StateEntry& choose(const std::filesystem::path& path, const std::vector<StateEntry>& entries,
                         const std::string& wanted, const FileValue& value) {
  const auto find = [&](std::string_view name) {
    return std::find_if(entries.begin(), entries.end(), [&](const StateEntry& e) { return e.path == name; });
  };
  if (entries.empty()) {
    refuse_state(path,
                 fmt::format("expected a dict with string keys that holds tensors, got a {} without one",
                             value.kind()));
  }
  if (!wanted.empty()) {
    const auto named = find(wanted);
    if (named != entries.end()) return *named;
    refuse_state(path, fmt::format("no state dict under {}; there is one under: {}", quoted_name(wanted),
                                   list_of(entries)));
  }
  if (entries.front().path.empty()) return entries.front();
  std::vector<StateEntry> usual;
  for (const auto* name : {"state_dict", "model", "model_state_dict"}) {
    if (const auto found = find(name); found != entries.end()) usual.push_back(*found);
  }
  if (usual.size() == 1) return *find(usual.front().path);
  refuse_state(path, fmt::format("it holds several things; name the state dict by its entry: {}",
                                 list_of(usual.empty() ? entries : usual)));
}

StateDictFile read_torch_state(const std::filesystem::path& path, const ReadStateOptions& options) {
  const auto value = load_torch(path, options.file);
  const auto entries = state_entries(value);
  const auto& entry = choose(path, entries, options.entry, value);
  StateDictFile file;
  file.entry = entry.path;
  for (const auto& [key, item] : entry.dict->as<FileValue::Dict>().items) {
    if (item.is<at::Tensor>()) file.state.emplace(key.as<std::string>(), item.as<at::Tensor>().detach());
    if (item.is<FileValue::Parameter>()) {
      file.state.emplace(key.as<std::string>(), item.as<FileValue::Parameter>().data);
    }
  }
  file.prefix = wrapper_prefix(file.state);
  file.values = without_tensors(value);
  return file;
}

StateDictFile read_safetensors_state(const std::filesystem::path& path, const ReadStateOptions& options) {
  if (!options.entry.empty()) {
    refuse_state(
        path, fmt::format("a safetensors file has no entries, so none under {}", quoted_name(options.entry)));
  }
  auto loaded = load_safetensors(path, {.map = options.file.map});
  FileValue::Dict values;
  for (const auto& [key, text] : loaded.metadata) values.items.emplace_back(key, text);
  StateDictFile file{
      .state = std::move(loaded.tensors), .entry = {}, .prefix = {}, .values = std::move(values)};
  file.prefix = wrapper_prefix(file.state);
  return file;
}

enum class Format { Torch, Safetensors, Unknown };

// Looks at the first bytes: a safetensors file begins with the length of its header, followed by a brace.
Format format_of(const std::filesystem::path& path) {
  try {
    const ByteSource source(path);
    std::array<char, 9> start{};
    source.read(0, start.data(), std::min<uint64_t>(start.size(), source.size()));
    if (start[8] == '{') return Format::Safetensors;
    if (start[0] == '\x80' || (start[0] == 'P' && start[1] == 'K')) return Format::Torch;
    return Format::Unknown;
  } catch (const Refusal& refusal) {
    refuse_state(path, refusal.what());
  }
}

}  // namespace

void refuse_state(const std::filesystem::path& path, std::string_view reason) {
  C10_THROW_ERROR(ValueError, fmt::format("read_state_dict: {}: {}", path.string(), reason));
}

std::string wrapper_prefix(const StateDict& state) {
  std::string prefix;
  const auto all_have = [&](const std::string& longer) {
    return std::all_of(state.begin(), state.end(),
                       [&](const auto& item) { return item.first.rfind(longer, 0) == 0; });
  };
  while (!state.empty()) {
    if (all_have(prefix + "module.")) {
      prefix += "module.";
    } else if (all_have(prefix + "_orig_mod.")) {
      prefix += "_orig_mod.";
    } else {
      break;
    }
  }
  return prefix;
}

StateDict without_prefix(const StateDict& state, std::string_view prefix) {
  StateDict result;
  for (const auto& [key, tensor] : state) {
    TORCH_CHECK_VALUE(key.rfind(prefix, 0) == 0, "without_prefix: expected every key to begin with ",
                      quoted_name(prefix), ", got ", quoted_name(key));
    result.emplace(key.substr(prefix.size()), tensor);
  }
  return result;
}

StateDictFile read_state_file(const std::filesystem::path& path, const ReadStateOptions& options) {
  switch (format_of(path)) {
    case Format::Safetensors:
      return read_safetensors_state(path, options);
    case Format::Torch:
      return read_torch_state(path, options);
    default:
      refuse_state(path, "neither a safetensors file nor a torch.save file");
  }
}

StateDictFile read_state_dict_file(const std::filesystem::path& path, const ReadStateOptions& options) {
  const auto file = is_folder(path) ? find_in(path) : path;
  return is_index(file) ? read_sharded_state(file, options) : read_state_file(file, options);
}

StateDict read_state_dict(const std::filesystem::path& path, const ReadStateOptions& options) {
  return read_state_dict_file(path, options).state;
}

namespace {

struct Index {
  std::map<std::string, std::string> shard_of;  // by tensor name
  FileValue::Dict metadata;
};

// Only plain names are accepted, so that shards are in the folder of the index.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

FileValue read_index_json(const std::filesystem::path& path) {
  try {
    return read_json(path, "index");
  } catch (const Refusal& refusal) {
    refuse_state(path, refusal.what());
  }
}

Index read_index(const std::filesystem::path& path) {
  const auto json = read_index_json(path);
  const auto* shards = json.is<FileValue::Dict>() ? json.find("weight_map") : nullptr;
  if (shards == nullptr || !shards->is<FileValue::Dict>()) {
    refuse_state(path, "expected an object with the key \"weight_map\" of an object");
  }
  Index index;
  for (const auto& [key, shard] : shards->as<FileValue::Dict>().items) {
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
  for (const auto& [key, item] : json.as<FileValue::Dict>().items) {
    if (key.as<std::string>() != "weight_map") index.metadata.items.emplace_back(key, item);
  }
  return index;
}

// Adds the tensors of a shard, each of which the index must list for this shard.
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
