#include <algorithm>
#include <string_view>
#include <vector>

#include "base/refusal.h"
#include "files/pickle/checks.h"
#include "files/pickle/graph.h"
#include "files/pickle/input.h"
#include "files/pickle/pickle.h"
#include "files/torch/torch_tensors.h"

namespace attentive {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::PickleInput;
using pickle::Ref;

constexpr std::string_view kMagic("\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19", 10);  // an integer of 77 bits
constexpr int64_t kProtocol = 1001;

std::string_view text_of(const Graph& graph, const PickleInput& input, Ref ref) {
  return input.text(graph[ref].offset, graph[ref].size);
}

void check_magic(PickleInput& input, MemoryBudget& budget) {
  Graph graph(budget);
  const auto magic = pickle::Unpickler(input, graph, {}).load();
  if (!graph.is(magic, Kind::LongInt) || text_of(graph, input, magic) != kMagic) {
    refuse("a pickle that torch.save did not write: it begins with {}", kind_name(graph[magic].kind));
  }
}

void check_protocol(PickleInput& input, MemoryBudget& budget) {
  Graph graph(budget);
  const auto version = pickle::Unpickler(input, graph, {}).load();
  if (!graph.is(version, Kind::Int) || graph[version].integer != kProtocol) {
    refuse("expected protocol version {}, got another one", kProtocol);
  }
}

void check_machine(PickleInput& input, MemoryBudget& budget) {
  Graph graph(budget);
  const auto facts = pickle::Unpickler(input, graph, {}).load();
  if (!graph.is_dict(facts)) refuse("expected a dict of the machine, got {}", kind_name(graph[facts].kind));
  auto items = graph.items(facts);
  for (Ref key = 0, value = 0; items.next(key) && items.next(value);) {
    if (!graph.is(key, Kind::Text) || text_of(graph, input, key) != "little_endian") continue;
    if (!graph.is(value, Kind::Bool)) refuse("expected little_endian to be a bool");
    if (graph[value].detail == 0) refuse("written on a big-endian machine");
    return;
  }
  refuse("its byte order is not stated");
}

// Reads the keys of the storages, as texts of `input`, in the order in which the storages follow.
std::vector<std::string_view> read_keys(PickleInput& input, MemoryBudget& budget, size_t storages) {
  Graph graph(budget);
  const auto list = pickle::Unpickler(input, graph, {}).load();
  if (!graph.is(list, Kind::List))
    refuse("expected a list of storage keys, got {}", kind_name(graph[list].kind));
  if (graph[list].size > storages) refuse("{} storage keys for {} mentions", graph[list].size, storages);
  std::vector<std::string_view> keys;
  auto items = graph.items(list);
  for (Ref key = 0; items.next(key);) {
    if (!graph.is(key, Kind::Text)) refuse("expected a storage key, got {}", kind_name(graph[key].kind));
    keys.push_back(text_of(graph, input, key));
  }
  return keys;
}

// Finds mentions of storages by key.
class Mentions {
 public:
  Mentions(const Graph& graph, const PickleInput& input) : graph_(graph), input_(input) {
    for (uint32_t i = 0; i < graph.storages.size(); ++i) by_key_.push_back(i);
    std::sort(by_key_.begin(), by_key_.end(),
              [&](uint32_t a, uint32_t b) { return std::pair(key_of(a), a) < std::pair(key_of(b), b); });
  }

  /// The mentions of a key, in the order of the pickle.
  std::pair<const uint32_t*, const uint32_t*> find(std::string_view key) const {
    const auto* begin = by_key_.data();
    const auto* end = begin + by_key_.size();
    const auto* first =
        std::lower_bound(begin, end, key, [&](uint32_t i, std::string_view k) { return key_of(i) < k; });
    const auto* last =
        std::upper_bound(first, end, key, [&](std::string_view k, uint32_t i) { return k < key_of(i); });
    return {first, last};
  }

  std::string_view key_of(uint32_t i) const { return text_of(graph_, input_, graph_.storages[i].key); }

 private:
  const Graph& graph_;
  const PickleInput& input_;
  std::vector<uint32_t> by_key_;
};

// Adds the storages, which follow the pickles.
void add_storages(const ByteSource& source, const Graph& graph, const PickleInput& input,
                  const std::vector<std::string_view>& keys, TorchTensors& tensors) {
  const Mentions mentions(graph, input);
  std::vector<bool> assigned(graph.storages.size());
  auto position = input.position();
  for (const auto key : keys) {
    const auto [first, last] = mentions.find(key);
    if (first == last) refuse("its description does not mention storage {}", quoted_name(key));
    if (assigned[*first]) refuse("storage {} follows twice", quoted_name(key));
    int64_t count = 0;
    source.read(position, &count, sizeof(count));
    position += sizeof(count);
    const auto item = c10::elementSize(graph.storages[*first].dtype);
    if (count != graph.storages[*first].numel ||
        static_cast<uint64_t>(count) > (source.size() - position) / item) {
      refuse("storage {} is said to have {} elements, but {} follow in {} bytes", quoted_name(key),
             graph.storages[*first].numel, count, source.size() - position);
    }
    const auto bytes = static_cast<uint64_t>(count) * item;
    const auto number = tensors.add(key, position, bytes, std::nullopt);
    for (const auto* mention = first; mention != last; ++mention) {
      tensors.assign(*mention, number);
      assigned[*mention] = true;
    }
    position += bytes;
  }
  const auto missing = std::find(assigned.begin(), assigned.end(), false);
  if (missing != assigned.end()) {
    const auto index = static_cast<uint32_t>(missing - assigned.begin());
    refuse("storage {} is not in the file", quoted_name(mentions.key_of(index)));
  }
  if (position != source.size()) refuse("{} bytes after its last storage", source.size() - position);
}

}  // namespace

FileValue read_torch_pickles(const ByteSource& source, const TorchFileOptions& options) {
  const auto& limits = options.limits;
  PickleInput input(source, 0, source.size(), limits.max_pickle_bytes);
  MemoryBudget budget(limits.max_pickle_bytes);
  check_magic(input, budget);
  check_protocol(input, budget);
  check_machine(input, budget);
  Graph graph(budget);
  const auto root =
      pickle::Unpickler(input, graph, {.storage_items = 6, .max_tensors = limits.max_tensors}).load();
  check_values(graph, input, root, limits);
  const auto keys = read_keys(input, budget, graph.storages.size());

  TorchTensors tensors(source, graph, options);
  add_storages(source, graph, input, keys, tensors);
  return build_value(graph, input, root, tensors.load());
}

}  // namespace attentive
