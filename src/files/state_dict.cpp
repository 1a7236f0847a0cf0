#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <attentive/core/module_state.h>
#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>

#include "base/files.h"
#include "base/refusal.h"
#include "base/strings.h"
#include "core/check.h"
#include "files/json_value.h"
#include "files/mapped_file.h"
#include "files/state_fit.h"

namespace attentive {
namespace {

// The children that hold the module in DataParallel, torch.compile, and FSDP's two wrappers.
constexpr std::string_view kWrappers[] = {"module.", "_orig_mod.", "_checkpoint_wrapped_module.",
                                          "_fsdp_wrapped_module."};

// Whether LibTorch can convert between the dtypes. Some dtypes are only stored, never converted.
bool converts(const at::Tensor& got, at::ScalarType type) {
  if (got.scalar_type() == type) return true;
  try {
    (void)at::empty({1}, got.options()).to(type);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace

std::string without_wrappers(std::string_view name) {
  std::string plain;
  while (!name.empty()) {
    const auto size = std::min(name.find('.'), name.size() - 1) + 1;
    const auto part = name.substr(0, size);
    if (std::find(std::begin(kWrappers), std::end(kWrappers), part) == std::end(kWrappers)) plain += part;
    name.remove_prefix(size);
  }
  return plain;
}

std::string refuse_source(const at::Tensor& got) {
  if (layout_name(got) != "dense")
    return fmt::format("expected a dense tensor, got a {} one", layout_name(got));
  if (got.is_quantized()) {
    return fmt::format("expected plain numbers, got a quantized tensor ({}); dequantize() it first",
                       c10::toString(got.scalar_type()));
  }
  if (got.is_meta()) return "expected a tensor with data, got one on the meta device";
  return {};
}

std::string refuse_tensor(const at::Tensor& got, const at::Tensor& want) {
  const auto reason = refuse_source(got);
  if (!reason.empty()) return reason;
  if (got.sizes() != want.sizes()) {
    return fmt::format("expected shape {}, got {}", shape_string(want.sizes()), shape_string(got.sizes()));
  }
  if (want.is_meta()) return "expected a module with data, but it is on the meta device";
  if (got.is_complex() != want.is_complex() || !converts(got, want.scalar_type())) {
    return fmt::format("expected dtype {}, got {}", c10::toString(want.scalar_type()),
                       c10::toString(got.scalar_type()));
  }
  return {};
}

namespace {

// Parameters and buffers by name; the tensors share memory with the module.
StateDict tensors_of(const torch::nn::Module& module) {
  StateDict result;
  for (const auto& item : module.named_parameters()) result.emplace(item.key(), item.value());
  for (const auto& item : module.named_buffers()) result.emplace(item.key(), item.value());
  return result;
}

// The keys of the causal masks that the Python classes keep as buffers, with the masks' side length (0: any).
std::map<std::string, int64_t> causal_masks_of(const torch::nn::Module& module) {
  std::map<std::string, int64_t> result;
  const auto add = [&](const std::string& prefix, const torch::nn::Module& part) {
    if (const auto* owner = dynamic_cast<const CausalMaskBuffer*>(&part)) {
      result.emplace(prefix + "mask", owner->context_length());
    }
  };
  // named_modules() cannot include the module itself: it would need a shared_ptr to it, which a caller need
  // not have.
  add("", module);
  for (const auto& item : module.named_modules("", /*include_self=*/false))
    add(item.key() + ".", *item.value());
  return result;
}

at::Tensor causal_mask(int64_t side) {
  return at::ones({side, side}, at::kFloat).triu(1);
}

// The reason why `mask` is not the causal mask of this side length; empty if it is.
std::string refuse_mask(const at::Tensor& mask, int64_t side) {
  if (const auto reason = refuse_source(mask); !reason.empty()) return reason;
  const bool square = mask.dim() == 2 && mask.size(0) == mask.size(1);
  if (!square || (side > 0 && mask.size(0) != side)) {
    return fmt::format("expected a causal mask of {}, got {}",
                       side > 0 ? fmt::format("shape ({0}, {0})", side) : "square shape", describe(mask));
  }
  const auto like = at::empty({1}, at::kFloat).expand(mask.sizes());
  if (const auto reason = refuse_tensor(mask, like); !reason.empty()) return reason;
  if (!mask.to(at::kCPU, at::kFloat).equal(causal_mask(mask.size(0)))) {
    return "expected a causal mask with ones strictly above the diagonal and zeros elsewhere, got other "
           "numbers";
  }
  return {};
}

// Recognises Hugging Face's GPT-2 by a name that no module of this package uses.
bool names_gpt2(const std::vector<std::string>& keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [](const std::string& key) { return matches("*h.*.attn.c_attn.weight", key); });
}

// The prefix that wrappers put before every key; empty if there is none.
std::string wrapper_prefix(const StateDict& state) {
  std::string prefix;
  const auto all_have = [&](std::string_view wrapper) {
    return std::all_of(state.begin(), state.end(), [&](const auto& item) {
      return item.first.compare(prefix.size(), wrapper.size(), wrapper) == 0;
    });
  };
  while (!state.empty()) {
    const auto* found = std::find_if(std::begin(kWrappers), std::end(kWrappers), all_have);
    if (found == std::end(kWrappers)) break;
    prefix += *found;
  }
  return prefix;
}

// Advice for the case that only a prefix, or a wrapper's part, distinguishes the dict's keys from the
// module's.
std::string prefix_hint(const StateDict& state, const StateDict& targets) {
  const auto prefix = wrapper_prefix(state);
  for (const auto& [key, tensor] : state) {
    if (!prefix.empty() && targets.count(key.substr(prefix.size())) > 0) {
      return fmt::format(
          "\nevery key begins with \"{0}\", which a wrapper put there: "
          "attentive::without_prefix(state, \"{0}\") takes it off",
          prefix);
    }
    const auto plain = without_wrappers(key);
    if (plain == key || targets.count(plain) == 0) continue;
    return fmt::format(
        "\n{} is {} without what a wrapper put there: attentive::without_wrappers(state) takes it off",
        quoted_name(key), quoted_name(plain));
  }
  return {};
}

// The copies that a load will make, and the tensors that do not fit.
struct LoadPlan {
  LoadStateReport report;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // target, source
};

LoadPlan plan_load(const torch::nn::Module& module, const StateDict& state, const LoadStateOptions& options) {
  const auto ignored = [&](const std::string& key) { return matches_any(options.ignore, key); };
  const auto targets = tensors_of(module);
  const auto masks = causal_masks_of(module);
  LoadPlan plan;
  for (const auto& [key, source] : state) {
    if (ignored(key)) continue;
    TORCH_CHECK_VALUE(source.defined(), "load_state_dict: expected ", key,
                      " to be a tensor, got an undefined one");
    const auto target = targets.find(key);
    const auto mask = masks.find(key);
    if (target == targets.end() && mask == masks.end()) {
      plan.report.unexpected.push_back(key);
      continue;
    }
    const auto reason =
        target != targets.end() ? refuse_tensor(source, target->second) : refuse_mask(source, mask->second);
    if (!reason.empty()) {
      plan.report.misshapen.push_back(fmt::format("{}: {}", key, reason));
    } else if (target != targets.end()) {
      plan.copies.emplace_back(target->second, source);
    }
  }
  for (const auto& [key, target] : targets) {
    if (!state.count(key) && !ignored(key)) plan.report.missing.push_back(key);
  }
  constexpr size_t most = 10;
  const auto* hint = names_gpt2(plan.report.unexpected)
                         ? ". These are the names of Hugging Face's GPT-2: "
                           "attentive::from_python_names(\"gpt2\", state) translates them"
                         : "";
  TORCH_CHECK_VALUE(!options.strict || plan.report.empty(), "load_state_dict: the state dict does not fit ",
                    module.name(), "; nothing was changed", hint, ":\n", plan.report.to_string(most),
                    prefix_hint(state, targets));
  return plan;
}

}  // namespace

std::string LoadStateReport::to_string(size_t most) const {
  std::string text;
  const auto add = [&](std::string_view title, const std::vector<std::string>& keys) {
    const auto line = [&](std::string_view what) {
      text += fmt::format("{}{}", text.empty() ? "" : "\n", what);
    };
    const auto shown = std::min(most, keys.size());
    for (size_t n = 0; n < shown; ++n) line(fmt::format("{} {}", title, keys[n]));
    if (shown < keys.size()) line(fmt::format("... and {} more {}", keys.size() - shown, title));
  };
  add("missing", missing);
  add("unexpected", unexpected);
  add("misshapen", misshapen);
  return text;
}

void check_state_dict(const torch::nn::Module& module, const StateDict& state) {
  (void)plan_load(module, state, {});
}

LoadStateReport load_state_dict(torch::nn::Module& module, const StateDict& state,
                                const LoadStateOptions& options) {
  auto [report, copies] = plan_load(module, state, options);
  // Parameters made under InferenceMode can only be written under it; others may be written under it too.
  const c10::InferenceMode writable;
  // A source may be another parameter of the same module (two keys swapped), so all such sources are cloned
  // before anything is written.
  std::set<const c10::StorageImpl*> written;
  for (const auto& [target, source] : copies) written.insert(target.storage().unsafeGetStorageImpl());
  for (auto& [target, source] : copies) {
    if (written.count(source.storage().unsafeGetStorageImpl())) source = source.clone();
  }
  for (auto& [target, source] : copies) target.copy_(source);
  return report;
}

StateDict state_dict(const torch::nn::Module& module, const StateDictOptions& options) {
  StateDict result;
  for (const auto& [key, tensor] : tensors_of(module)) result.emplace(key, tensor.detach());
  if (!options.causal_mask_buffers) return result;
  const auto parameters = module.parameters();
  for (const auto& [key, side] : causal_masks_of(module)) {
    TORCH_CHECK_VALUE(side > 0, "state_dict: expected a limited context_length for the buffer \"", key,
                      "\", got 0 (no limit)");
    result.emplace(key,
                   parameters.empty() ? causal_mask(side) : causal_mask(side).to(parameters[0].options()));
  }
  return result;
}

namespace {

bool is_tensor(const FileValue& value) {
  return value.is<at::Tensor>() || value.is<FileValue::Parameter>();
}

const std::vector<FileValue>* items_of(const FileValue& value) {
  if (value.is<FileValue::List>()) return &value.as<FileValue::List>().items;
  if (value.is<FileValue::Tuple>()) return &value.as<FileValue::Tuple>().items;
  if (value.is<FileValue::Set>()) return &value.as<FileValue::Set>().items;
  return nullptr;
}

// A dict of a `torch.save` file that is a state dict: its keys are strings, it holds tensors, and no
// container in it holds further tensors.
struct StateEntry {
  std::string path;  // keys separated by '/'; "" for the whole value
  const FileValue* dict;
};

// Finds all state dicts that can be reached through dicts with string keys, in the order of the file.
class Search {
 public:
  // Whether `value` holds a tensor. `path` leads to it, or is null if no path of string keys does.
  bool run(const FileValue& value, const std::string* path) {
    if (is_tensor(value)) return true;
    if (value.is<FileValue::Dict>()) return run_dict(value, path);
    bool any = false;
    if (const auto* items = items_of(value)) {
      for (const auto& item : *items) any |= run(item, nullptr);
    }
    return any;
  }

  std::vector<StateEntry> found;

 private:
  bool run_dict(const FileValue& value, const std::string* path) {
    bool named = path != nullptr, direct = false, nested = false;
    const auto place = found.size();  // an entry comes before the entries inside it
    for (const auto& [key, item] : value.as<FileValue::Dict>().items) {
      const bool text = key.is<std::string>();
      named = named && text;
      if (is_tensor(item)) {
        direct = true;
      } else if (path != nullptr && text) {
        const auto below = path->empty() ? key.as<std::string>() : *path + '/' + key.as<std::string>();
        nested |= run(item, &below);
      } else {
        nested |= run(item, nullptr);
      }
    }
    if (named && direct && !nested) {
      found.insert(found.begin() + static_cast<std::ptrdiff_t>(place), {*path, &value});
    }
    return direct || nested;
  }
};

// Copies the value without its tensors: dict entries that are tensors are omitted; in lists and tuples, None
// replaces each tensor.
FileValue without_tensors(const FileValue& value) {
  const auto kept = [](const std::vector<FileValue>& items) {
    std::vector<FileValue> result;
    result.reserve(items.size());
    for (const auto& item : items) result.push_back(without_tensors(item));
    return result;
  };
  if (is_tensor(value)) return {};
  if (value.is<FileValue::List>()) return FileValue::List{kept(value.as<FileValue::List>().items)};
  if (value.is<FileValue::Tuple>()) return FileValue::Tuple{kept(value.as<FileValue::Tuple>().items)};
  if (!value.is<FileValue::Dict>()) return value;
  FileValue::Dict dict;
  dict.ordered = value.as<FileValue::Dict>().ordered;
  for (const auto& [key, item] : value.as<FileValue::Dict>().items) {
    if (!is_tensor(item)) dict.items.emplace_back(key, without_tensors(item));
  }
  return dict;
}

bool is_index(const std::filesystem::path& path) {
  constexpr std::string_view kEnding = ".index.json";
  const auto name = path.filename().string();
  return name.size() > kEnding.size() && name.ends_with(kEnding);
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
  if (count == 0) refuse("the folder holds no state dict under a name that is known");
  if (count > 1) refuse("the folder holds {}: name one of them", found);
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
const StateEntry& choose(const std::vector<StateEntry>& entries, const std::string& wanted,
                         const FileValue& value) {
  const auto find = [&](std::string_view name) {
    return std::find_if(entries.begin(), entries.end(), [&](const StateEntry& e) { return e.path == name; });
  };
  if (entries.empty()) {
    refuse("expected a dict with string keys that holds tensors, got a {} without one", value.kind());
  }
  if (!wanted.empty()) {
    const auto named = find(wanted);
    if (named != entries.end()) return *named;
    refuse("no state dict under {}; there is one under: {}", quoted_name(wanted), list_of(entries));
  }
  if (entries.front().path.empty()) return entries.front();
  std::vector<StateEntry> usual;
  for (const auto* name : {"state_dict", "model", "model_state_dict"}) {
    if (const auto found = find(name); found != entries.end()) usual.push_back(*found);
  }
  if (usual.size() == 1) return *find(usual.front().path);
  refuse("it holds several things; name the state dict by its entry: {}",
         list_of(usual.empty() ? entries : usual));
}

StateDictFile read_torch_state(const std::filesystem::path& path, const ReadStateOptions& options) {
  const auto value = load_torch(path, options.file);
  Search search;
  const std::string root;
  search.run(value, &root);
  const auto& entry = choose(search.found, options.entry, value);
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
    refuse("a safetensors file has no entries, so none under {}", quoted_name(options.entry));
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
  const ByteSource source(path);
  std::array<char, 9> start{};
  source.read(0, start.data(), std::min<uint64_t>(start.size(), source.size()));
  if (start[8] == '{') return Format::Safetensors;
  if (start[0] == '\x80' || (start[0] == 'P' && start[1] == 'K')) return Format::Torch;
  return Format::Unknown;
}

// Returns the call's result; a Refusal becomes a c10::ValueError that names the path.
template <class Call>
auto naming(const std::filesystem::path& path, const Call& call) {
  try {
    return call();
  } catch (const Refusal& refusal) {
    C10_THROW_ERROR(ValueError, fmt::format("read_state_dict: {}: {}", path.string(), refusal.what()));
  }
}

// Reads a state dict from one file that is not an index.
StateDictFile read_state_file(const std::filesystem::path& path, const ReadStateOptions& options) {
  return naming(path, [&] {
    switch (format_of(path)) {
      case Format::Safetensors:
        return read_safetensors_state(path, options);
      case Format::Torch:
        return read_torch_state(path, options);
      default:
        refuse("neither a safetensors file nor a torch.save file");
    }
  });
}

struct Index {
  std::map<std::string, std::string> shard_of;  // by tensor name
  FileValue::Dict metadata;
};

// Only plain names are accepted, so that shards are in the folder of the index.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

Index read_index(const std::filesystem::path& path) {
  const auto json = read_json(path, "index");
  const auto* shards = json.is<FileValue::Dict>() ? json.find("weight_map") : nullptr;
  if (shards == nullptr || !shards->is<FileValue::Dict>()) {
    refuse("expected an object with the key \"weight_map\" of an object");
  }
  Index index;
  for (const auto& [key, shard] : shards->as<FileValue::Dict>().items) {
    const auto& tensor = key.as<std::string>();
    if (!shard.is<std::string>()) refuse("the shard of {} is no string", quoted_name(tensor));
    if (!is_plain_name(shard.as<std::string>())) {
      refuse("the shard {} of {} is not the plain name of a file", quoted_name(shard.as<std::string>()),
             quoted_name(tensor));
    }
    index.shard_of.emplace(tensor, shard.as<std::string>());
  }
  if (index.shard_of.empty()) refuse("the index lists no tensors");
  for (const auto& [key, item] : json.as<FileValue::Dict>().items) {
    if (key.as<std::string>() != "weight_map") index.metadata.items.emplace_back(key, item);
  }
  return index;
}

// Adds the tensors of a shard, each of which the index must list for this shard.
void take_shard(const std::filesystem::path& path, const std::string& name, const Index& index,
                const ReadStateOptions& options, StateDict& state) {
  const auto shard = read_state_file(path.parent_path() / name, options);
  if (!shard.entry.empty()) refuse("shard {} is no state dict as a whole", quoted_name(name));
  for (const auto& [key, tensor] : shard.state) {
    const auto listed = index.shard_of.find(key);
    if (listed == index.shard_of.end()) {
      refuse("shard {} holds {}, which the index does not list", quoted_name(name), quoted_name(key));
    }
    if (listed->second != name) {
      refuse("shard {} holds {}, which the index lists in {}", quoted_name(name), quoted_name(key),
             quoted_name(listed->second));
    }
    state.emplace(key, tensor);
  }
}

// Reads a state dict from the shards listed by an index in the same folder.
StateDictFile read_sharded_state(const std::filesystem::path& path, const ReadStateOptions& options) {
  if (!options.entry.empty()) {
    refuse("an index has no entries, so none under {}", quoted_name(options.entry));
  }
  auto index = read_index(path);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : index.shard_of) shards.insert(shard);
  StateDictFile file;
  for (const auto& shard : shards) take_shard(path, shard, index, options, file.state);
  for (const auto& [tensor, shard] : index.shard_of) {
    if (file.state.count(tensor) == 0) {
      refuse("shard {} lacks {}, which the index lists in it", quoted_name(shard), quoted_name(tensor));
    }
  }
  file.prefix = wrapper_prefix(file.state);
  file.values = std::move(index.metadata);
  return file;
}

}  // namespace

StateDict without_prefix(const StateDict& state, std::string_view prefix) {
  StateDict result;
  for (const auto& [key, tensor] : state) {
    TORCH_CHECK_VALUE(key.starts_with(prefix), "without_prefix: expected every key to begin with ",
                      quoted_name(prefix), ", got ", quoted_name(key));
    result.emplace(key.substr(prefix.size()), tensor);
  }
  return result;
}

StateDict without_wrappers(const StateDict& state) {
  StateDict result;
  for (const auto& [key, tensor] : state) {
    TORCH_CHECK_VALUE(result.emplace(without_wrappers(std::string_view(key)), tensor).second,
                      "without_wrappers: expected one key for each name, got a second one, ",
                      quoted_name(key));
  }
  return result;
}

StateDictFile read_state_dict_file(const std::filesystem::path& path, const ReadStateOptions& options) {
  const auto file = is_folder(path) ? naming(path, [&] { return find_in(path); }) : path;
  if (!is_index(file)) return read_state_file(file, options);
  return naming(file, [&] { return read_sharded_state(file, options); });
}

StateDict read_state_dict(const std::filesystem::path& path, const ReadStateOptions& options) {
  return read_state_dict_file(path, options).state;
}

}  // namespace attentive
