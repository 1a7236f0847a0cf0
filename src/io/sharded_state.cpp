#include <limits>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "io/byte_source.h"
#include "io/refusal.h"
#include "io/safetensors_header.h"
#include "io/state_dict_file.h"
#include "io/utf8.h"

namespace attentive {
namespace {

constexpr uint64_t kLongestIndex = 100'000'000;  // bytes, as a safetensors header
constexpr int kMaxDepth = 16;

struct Index {
  std::map<std::string, std::string> shard_of;  // by tensor
  TorchValue::Dict metadata;
};

std::string read_text(const std::filesystem::path& path) {
  try {
    const ByteSource source(path);
    if (source.size() > kLongestIndex) {
      refuse("an index of {} bytes is longer than the limit of {}", source.size(), kLongestIndex);
    }
    std::string text(source.size(), '\0');
    source.read(0, text.data(), text.size());
    if (!is_utf8(text)) refuse("the index is not UTF-8");
    return text;
  } catch (const Refusal& refusal) {
    refuse_state(path, refusal.what());
  }
}

// A parsed JSON object hides a key that comes twice, so the events are watched.
nlohmann::json parse(const std::filesystem::path& path, const std::string& text) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kMaxDepth) refuse_state(path, "the index nests too deep");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get<std::string>()).second) {
      refuse_state(path, fmt::format("the index holds {} twice", quoted_name(value.get<std::string>())));
    }
    return true;
  };
  auto index = nlohmann::json::parse(text, watch, /*allow_exceptions=*/false);
  if (index.is_discarded()) refuse_state(path, "the index is not JSON");
  return index;
}

TorchValue to_value(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return value.get<double>();
  if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max()) {
    return TorchValue::Integer{std::to_string(value.get<uint64_t>())};
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_array()) {
    TorchValue::List list;
    for (const auto& item : value) list.items.push_back(to_value(item));
    return list;
  }
  if (value.is_object()) {
    TorchValue::Dict dict;
    for (const auto& [key, item] : value.items()) dict.items.emplace_back(key, to_value(item));
    return dict;
  }
  return {};
}

// Beside the index, and nowhere else.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

Index read_index(const std::filesystem::path& path) {
  const auto json = parse(path, read_text(path));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    refuse_state(path, "expected an object with the key \"weight_map\" of an object");
  }
  Index index;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    if (!shard.is_string()) {
      refuse_state(path, fmt::format("the shard of {} is no string", quoted_name(tensor)));
    }
    if (!is_plain_name(shard.get<std::string>())) {
      refuse_state(path, fmt::format("the shard {} of {} is not the plain name of a file",
                                     quoted_name(shard.get<std::string>()), quoted_name(tensor)));
    }
    index.shard_of.emplace(tensor, shard.get<std::string>());
  }
  if (index.shard_of.empty()) refuse_state(path, "the index lists no tensors");
  for (const auto& [key, item] : json.items()) {
    if (key != "weight_map") index.metadata.items.emplace_back(key, to_value(item));
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
