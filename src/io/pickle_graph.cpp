#include "io/pickle_graph.h"

#include <array>

namespace attentive::pickle {
namespace {

// The numbers of nodes that exist from the start: most numbers in a file are among them.
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
  const auto at = static_cast<uint32_t>(pool_.size());
  pool_.push_back(item);
  ++nodes_[to].size;
  auto& chain = container(to);
  if (chain.last != kNoRef && pieces_[chain.last].begin + pieces_[chain.last].count == at) {
    ++pieces_[chain.last].count;
    return;
  }
  const auto piece = static_cast<uint32_t>(pieces_.size());
  pieces_.push_back({at, 1, kNoRef});
  (chain.first == kNoRef ? chain.first : pieces_[chain.last].next) = piece;
  chain.last = piece;
}

Ref Graph::copy_container(Kind kind, Ref from) {
  const auto copy = add_container(kind);
  // The pieces of `from` alone: while they are copied, `copy` may come to lie behind them.
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

}  // namespace attentive::pickle
