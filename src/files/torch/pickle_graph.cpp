#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <compare>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/refusal.h"
#include "files/dtypes.h"
#include "files/torch/pickle.h"

namespace attentive::pickle {
namespace {

// The indices of nodes that exist from the beginning: None, False, True and the small integers, which are the
// most frequent values.
constexpr Ref kNone = 0;
constexpr Ref kFalse = 1;
constexpr Ref kFirstInt = 3;
constexpr int64_t kSmallInts = 256;

}  // namespace

std::string_view kind_name(Kind kind) {
  static constexpr std::array<std::string_view, 21> kNames = {"None",
                                                              "a bool",
                                                              "an int",
                                                              "an int beyond 64 bits",
                                                              "a float",
                                                              "a complex",
                                                              "a str",
                                                              "bytes",
                                                              "bytes",
                                                              "a list",
                                                              "a tuple",
                                                              "a set",
                                                              "a dict",
                                                              "an OrderedDict",
                                                              "a storage",
                                                              "a tensor",
                                                              "a Parameter",
                                                              "a dtype",
                                                              "a device",
                                                              "a layout",
                                                              "a class or function"};
  return kNames[static_cast<size_t>(kind)];
}

Graph::Graph(MemoryBudget& budget)
    : budget_(budget),
      nodes_(budget),
      containers_(budget),
      pieces_(budget),
      pool_(budget),
      storages(budget),
      tensors(budget) {
  nodes_.push_back({});
  for (uint8_t value = 0; value < 2; ++value)
    nodes_.push_back({.kind = Kind::Bool, .detail = value, .integer = 0});
  for (int64_t value = 0; value < kSmallInts; ++value) {
    nodes_.push_back({.kind = Kind::Int, .integer = value});
  }
}

Ref Graph::add(Node node) {
  nodes_.push_back(node);
  return static_cast<Ref>(nodes_.size() - 1);
}

Ref Graph::add(Kind kind, uint8_t detail) {
  if (kind == Kind::None) return kNone;
  if (kind == Kind::Bool) return kFalse + detail;
  return add({.kind = kind, .detail = detail, .integer = 0});
}

Ref Graph::add_int(int64_t value) {
  if (value >= 0 && value < kSmallInts) return kFirstInt + static_cast<Ref>(value);
  return add({.kind = Kind::Int, .integer = value});
}

Ref Graph::add_float(double value) {
  return add({.kind = Kind::Float, .real = value});
}

Ref Graph::add_text(Kind kind, uint64_t offset, uint64_t size) {
  return add({.kind = kind, .size = static_cast<uint32_t>(size), .offset = offset});
}

Ref Graph::add_container(Kind kind) {
  containers_.push_back({});
  return add({.kind = kind, .index = containers_.size() - 1});
}

Ref Graph::add_container(Kind kind, const ChunkedArray<Ref>& from, size_t first, size_t count) {
  const auto made = add_container(kind);
  append(made, from, first, count);
  return made;
}

void Graph::append(Ref to, const ChunkedArray<Ref>& from, size_t first, size_t count) {
  for (size_t i = 0; i < count; ++i) append(to, from[first + i]);
}

void Graph::append(Ref to, Ref item) {
  const auto offset = static_cast<uint32_t>(pool_.size());
  pool_.push_back(item);
  ++nodes_[to].size;
  auto& chain = container(to);
  if (chain.last != kNoRef && pieces_[chain.last].begin + pieces_[chain.last].count == offset) {
    ++pieces_[chain.last].count;
    return;
  }
  const auto piece = static_cast<uint32_t>(pieces_.size());
  pieces_.push_back({offset, 1, kNoRef});
  (chain.first == kNoRef ? chain.first : pieces_[chain.last].next) = piece;
  chain.last = piece;
}

Ref Graph::copy_container(Kind kind, Ref from) {
  const auto copy = add_container(kind);
  // Copies each piece before it is appended, because append() adds pieces to the same array.
  for (auto i = container(from).first; i != kNoRef; i = pieces_[i].next) {
    const auto piece = pieces_[i];
    append(copy, pool_, piece.begin, piece.count);
  }
  return copy;
}

bool Graph::is_container(Ref ref) const {
  const auto kind = nodes_[ref].kind;
  return kind >= Kind::List && kind <= Kind::OrderedDict;
}

namespace {

enum Order { kNothing, kInteger, kFraction, kComplex, kLongInteger, kText, kBytes, kLatin1, kTuple };

bool is_scalar(Kind kind) {
  return kind <= Kind::Latin1;
}

// Checks that the keys of a dict, or the items of a set, can be hashed in Python and are distinct.
class Keys {
 public:
  Keys(Graph& graph, const PickleInput& input) : graph_(graph), input_(input) {}

  // Throws Refusal. Accepts any other kind of container, as those have no keys.
  void check(Ref container) const;

 private:
  struct Comparable;

  void check_hashable(Ref key, Ref container) const;
  Comparable comparable(Ref scalar) const;
  std::strong_ordering compare(Ref a, Ref b) const;
  std::string describe(Ref key) const;

  Graph& graph_;
  const PickleInput& input_;
};

// A key that is not a tuple, in a form in which True, 1 and 1.0 are equal, as in Python.
struct Keys::Comparable {
  int order = kNothing;
  int64_t number = 0;
  int64_t imaginary = 0;
  std::string_view text = {};

  auto operator<=>(const Comparable&) const = default;

  static Comparable of_number(double value) {
    constexpr double kBeyond = 9223372036854775808.0;
    if (value == std::trunc(value) && value >= -kBeyond && value < kBeyond) {
      return {kInteger, static_cast<int64_t>(value)};
    }
    return {kFraction, std::bit_cast<int64_t>(value)};
  }
};

Keys::Comparable Keys::comparable(Ref scalar) const {
  const auto& node = graph_[scalar];
  const auto text = [&](int order) -> Comparable {
    return {order, 0, 0, input_.text(node.offset, node.size)};
  };
  switch (node.kind) {
    case Kind::Bool:
      return {kInteger, node.detail};
    case Kind::Int:
      return {kInteger, node.integer};
    case Kind::Float:
      return Comparable::of_number(node.real);
    case Kind::Complex: {
      const auto real = graph_[node.size].real, imaginary = graph_[static_cast<Ref>(node.index)].real;
      if (imaginary == 0) return Comparable::of_number(real);
      return {kComplex, std::bit_cast<int64_t>(real), std::bit_cast<int64_t>(imaginary)};
    }
    case Kind::LongInt:
      return text(kLongInteger);
    case Kind::Text:
      return text(kText);
    case Kind::Bytes:
      return text(kBytes);
    case Kind::Latin1:
      return text(kLatin1);
    default:
      return {};
  }
}

std::strong_ordering Keys::compare(Ref a, Ref b) const {
  if (a == b) return std::strong_ordering::equal;
  const bool tuples = graph_.is(a, Kind::Tuple);
  if (tuples != graph_.is(b, Kind::Tuple)) return tuples <=> !tuples;
  if (!tuples) return comparable(a) <=> comparable(b);
  auto left = graph_.items(a), right = graph_.items(b);
  for (Ref x = 0, y = 0;;) {
    const bool more = left.next(x);
    if (more != right.next(y)) return more <=> !more;
    if (!more) return std::strong_ordering::equal;
    if (const auto order = comparable(x) <=> comparable(y); order != 0) return order;
  }
}

void Keys::check_hashable(Ref key, Ref container) const {
  auto kind = graph_[key].kind;
  if (kind == Kind::Tuple) {
    auto items = graph_.items(key);
    for (Ref item = 0; items.next(item);) {
      if (is_scalar(graph_[item].kind)) continue;
      refuse("a key of {} is a tuple that holds {}; numbers and strings are read",
             kind_name(graph_[container].kind), kind_name(graph_[item].kind));
    }
  } else if (!is_scalar(kind)) {
    refuse("a key of {} is {}; numbers, strings and tuples of them are read",
           kind_name(graph_[container].kind), kind_name(kind));
  }
}

void Keys::check(Ref container) const {
  const bool dict = graph_.is_dict(container);
  if (!dict && !graph_.is(container, Kind::Set)) return;
  const auto count = graph_[container].size / (dict ? 2 : 1);
  const BudgetShare share(graph_.budget(), count * sizeof(Ref));
  std::vector<Ref> keys;
  keys.reserve(count);
  auto items = graph_.items(container);
  for (Ref key = 0, value = 0; items.next(key);) {
    check_hashable(key, container);
    keys.push_back(key);
    if (dict) items.next(value);
  }
  std::sort(keys.begin(), keys.end(), [&](Ref a, Ref b) { return compare(a, b) < 0; });
  const auto twice =
      std::adjacent_find(keys.begin(), keys.end(), [&](Ref a, Ref b) { return compare(a, b) == 0; });
  if (twice != keys.end()) {
    refuse("{} holds the key {} twice", kind_name(graph_[container].kind), describe(*twice));
  }
}

std::string Keys::describe(Ref key) const {
  const auto& node = graph_[key];
  switch (node.kind) {
    case Kind::Text:
      return quoted_name(input_.text(node.offset, node.size));
    case Kind::Int:
      return fmt::format("{}", node.integer);
    case Kind::Float:
      return fmt::format("{}", node.real);
    default:
      return fmt::format("({})", kind_name(node.kind));
  }
}

// A container on the path from the root to the current value.
struct CheckFrame {
  Ref container;
  Graph::Items items;
  uint64_t values = 1;
  uint64_t text = 0;
  uint16_t depth = 1;
};

class Check {
 public:
  Check(Graph& graph, const PickleInput& input, const TorchFileLimits& limits)
      : graph_(graph), keys_(graph, input), limits_(limits) {}

  void run(Ref root) {
    CheckFrame above{kNoRef, graph_.no_items(), /*values=*/0};
    visit(root, above);
    while (!frames_.empty()) {
      auto& frame = frames_.back();
      Ref item = 0;
      if (frame.items.next(item)) {
        visit(item, frame);
      } else {
        const auto done = frame;
        frames_.pop_back();
        leave(done, frames_.empty() ? above : frames_.back());
      }
    }
  }

 private:
  // A leaf is counted at once; a container is counted when all its items have been.
  void visit(Ref ref, CheckFrame& parent) {
    const auto& node = graph_[ref];
    if (!graph_.is_container(ref)) return count(parent, 1, text_of(node), 0);
    auto& container = graph_.container(ref);
    if (container.open) refuse("it holds {} that contains itself", kind_name(node.kind));
    if (container.values > 0) return count(parent, container.values, container.text, container.depth);
    if (frames_.size() >= static_cast<size_t>(limits_.max_depth)) too_deep();
    container.open = true;
    frames_.push_back({ref, graph_.items(ref)});
  }

  void leave(const CheckFrame& frame, CheckFrame& parent) {
    auto& container = graph_.container(frame.container);
    container.open = false;
    container.values = static_cast<uint32_t>(frame.values);
    container.text = frame.text;
    container.depth = frame.depth;
    keys_.check(frame.container);
    count(parent, frame.values, frame.text, frame.depth);
  }

  void count(CheckFrame& parent, uint64_t values, uint64_t text, uint16_t depth) {
    parent.values += values;
    parent.text += text;
    parent.depth = std::max<uint16_t>(parent.depth, depth + 1);
    if (parent.values > static_cast<uint64_t>(limits_.max_values)) {
      refuse("it holds more than {} values (max_values)", limits_.max_values);
    }
    if (parent.text > limits_.max_pickle_bytes) {
      refuse("its strings exceed {} bytes together (max_pickle_bytes)", limits_.max_pickle_bytes);
    }
    if (frames_.size() + depth > static_cast<size_t>(limits_.max_depth)) too_deep();
  }

  [[noreturn]] void too_deep() const {
    refuse("it nests containers more than {} deep (max_depth)", limits_.max_depth);
  }

  static uint64_t text_of(const Node& node) {
    switch (node.kind) {
      case Kind::Text:
      case Kind::Bytes:
      case Kind::Latin1:
        return node.size;
      case Kind::LongInt:
        return uint64_t{3} * node.size;  // at most 3 decimal digits for each byte
      case Kind::Storage:
        refuse("it holds a storage that is not part of a tensor");
      case Kind::Global:
        refuse("it holds a class or function as a value");
      default:
        return 0;
    }
  }

  Graph& graph_;
  Keys keys_;
  const TorchFileLimits& limits_;
  std::vector<CheckFrame> frames_;
};

std::string from_latin1(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    // A character above U+007F has two bytes: 110000xx 10xxxxxx.
    bytes.push_back(lead < 0x80 ? text[i] : static_cast<char>((lead << 6) | (text[++i] & 0x3F)));
  }
  return bytes;
}

// A container whose items are being built.
struct BuildFrame {
  Graph::Items items;
  std::vector<FileValue> made;
  Ref container;
};

class Builder {
 public:
  Builder(const Graph& graph, const PickleInput& input, const std::vector<at::Tensor>& tensors)
      : graph_(graph), input_(input), tensors_(tensors) {}

  FileValue run(Ref root) {
    std::vector<BuildFrame> frames;
    const auto open = [&](Ref ref) {
      frames.push_back({graph_.items(ref), {}, ref});
      frames.back().made.reserve(graph_[ref].size);
    };
    if (!graph_.is_container(root)) return leaf(root);
    open(root);
    while (true) {
      Ref item = 0;
      if (frames.back().items.next(item)) {
        if (graph_.is_container(item)) {
          open(item);
        } else {
          frames.back().made.push_back(leaf(item));
        }
        continue;
      }
      auto done = std::move(frames.back());
      frames.pop_back();
      auto value = container(done);
      if (frames.empty()) return value;
      frames.back().made.push_back(std::move(value));
    }
  }

 private:
  FileValue container(BuildFrame& frame) const {
    switch (graph_[frame.container].kind) {
      case Kind::List:
        return FileValue::List{std::move(frame.made)};
      case Kind::Tuple:
        return FileValue::Tuple{std::move(frame.made)};
      case Kind::Set:
        return FileValue::Set{std::move(frame.made)};
      default: {
        FileValue::Dict dict;
        dict.ordered = graph_.is(frame.container, Kind::OrderedDict);
        dict.items.reserve(frame.made.size() / 2);
        for (size_t i = 0; i < frame.made.size(); i += 2) {
          dict.items.emplace_back(std::move(frame.made[i]), std::move(frame.made[i + 1]));
        }
        return dict;
      }
    }
  }

  FileValue leaf(Ref ref) const {
    const auto& node = graph_[ref];
    switch (node.kind) {
      case Kind::Bool:
        return node.detail != 0;
      case Kind::Int:
        return node.integer;
      case Kind::LongInt:
        return FileValue::Integer{decimal_of(text(node))};
      case Kind::Float:
        return node.real;
      case Kind::Complex:
        return std::complex<double>(graph_[node.size].real, graph_[static_cast<Ref>(node.index)].real);
      case Kind::Text:
        return std::string(text(node));
      case Kind::Bytes:
        return FileValue::Bytes{std::string(text(node))};
      case Kind::Latin1:
        return FileValue::Bytes{from_latin1(text(node))};
      case Kind::Tensor:
        return tensors_[node.index];
      case Kind::Parameter:
        return parameter(node);
      case Kind::Dtype:
        return static_cast<at::ScalarType>(node.detail);
      case Kind::Device:
        return c10::Device(static_cast<c10::DeviceType>(node.detail),
                           static_cast<c10::DeviceIndex>(node.integer));
      case Kind::Layout:
        return at::kStrided;
      default:
        return {};
    }
  }

  FileValue parameter(const Node& node) const {
    return FileValue::Parameter{tensors_[graph_[static_cast<Ref>(node.index)].index], node.detail != 0};
  }

  std::string_view text(const Node& node) const { return input_.text(node.offset, node.size); }

  const Graph& graph_;
  const PickleInput& input_;
  const std::vector<at::Tensor>& tensors_;
};

}  // namespace

void check_values(Graph& graph, const PickleInput& input, Ref root, const TorchFileLimits& limits) {
  Check(graph, input, limits).run(root);
}

FileValue build_value(const Graph& graph, const PickleInput& input, Ref root,
                      const std::vector<at::Tensor>& tensors) {
  return Builder(graph, input, tensors).run(root);
}

}  // namespace attentive::pickle
