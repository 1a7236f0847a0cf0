#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <attentive/files/file_value.h>

#include "files/pickle/chunked_array.h"
#include "files/pickle/input.h"

namespace attentive::pickle {

/// A value of a pickle: an index into the graph's nodes.
using Ref = uint32_t;
inline constexpr Ref kNoRef = 0xFFFFFFFF;

enum class Kind : uint8_t {
  None,
  Bool,
  Int,
  LongInt,  ///< beyond 64 bits: little-endian bytes in two's complement
  Float,
  Complex,
  Text,
  Bytes,
  Latin1,  ///< bytes, each written as the character with its code
  List,
  Tuple,
  Set,
  Dict,
  OrderedDict,
  Storage,
  Tensor,
  Parameter,
  Dtype,
  Device,
  Layout,
  Global,
};

/// The name of a kind with its article, for messages.
std::string_view kind_name(Kind kind);

struct Node {
  Kind kind = Kind::None;
  /// A bool, a dtype (also a storage class's), a device type, or a parameter's requires_grad.
  uint8_t detail = 0;
  uint32_t size = 0;  ///< bytes of a text; items of a container (two each in a dict); a complex's real part
  union {
    int64_t integer;  ///< an int; a device's index
    double real;
    uint64_t offset;  ///< the offset of a text's bytes in the pickle
    uint64_t index;   ///< the index of a container, storage, tensor or global; the tensor node of a parameter
  };
};
static_assert(sizeof(Node) == 16);

/// The items of a container as a linked list of pieces, with the results of its check.
struct Container {
  uint32_t first = kNoRef;
  uint32_t last = kNoRef;
  uint64_t text = 0;    ///< the bytes of all strings in it
  uint32_t values = 0;  ///< the number of values in it, itself included; 0: not checked yet
  uint16_t depth = 0;   ///< how deeply containers are nested in it
  bool open = false;    ///< being checked; meeting it again means a cycle
};

struct Piece {
  uint32_t begin = 0;
  uint32_t count = 0;
  uint32_t next = kNoRef;
};

/// A storage as one mention describes it. A view (only before PyTorch 1.6) is a part of a storage.
struct StorageMention {
  Ref key = 0;
  Ref view_key = kNoRef;
  int64_t numel = 0;
  int64_t view_offset = 0;
  int64_t view_numel = 0;
  at::ScalarType dtype = at::kByte;
  bool untyped = false;
};

struct TensorSpec {
  uint32_t storage = 0;  ///< the index of the storage's mention
  Ref sizes = 0;
  Ref strides = 0;
  at::ScalarType dtype = at::kFloat;
  bool requires_grad = false;
  bool conj = false;
  bool neg = false;
  int64_t offset = 0;
};

/// The values that a pickle builds. Shared values stay shared, and texts stay in the pickle: nothing is
/// copied.
class Graph {
 public:
  explicit Graph(MemoryBudget& budget);

  Ref add(Node node);
  Ref add(Kind kind, uint8_t detail = 0);
  Ref add_int(int64_t value);
  Ref add_float(double value);
  Ref add_text(Kind kind, uint64_t offset, uint64_t size);
  Ref add_container(Kind kind);
  /// Adds a container of `count` values of an array, beginning with value `first`.
  Ref add_container(Kind kind, const ChunkedArray<Ref>& from, size_t first, size_t count);
  void append(Ref container, const ChunkedArray<Ref>& from, size_t first, size_t count);
  void append(Ref container, Ref item);
  /// Adds a container with the items of another one.
  Ref copy_container(Kind kind, Ref from);

  MemoryBudget& budget() { return budget_; }
  const Node& operator[](Ref ref) const { return nodes_[ref]; }
  bool is(Ref ref, Kind kind) const { return nodes_[ref].kind == kind; }
  bool is_dict(Ref ref) const { return is(ref, Kind::Dict) || is(ref, Kind::OrderedDict); }
  bool is_container(Ref ref) const;
  Container& container(Ref ref) { return containers_[nodes_[ref].index]; }
  const Container& container(Ref ref) const { return containers_[nodes_[ref].index]; }
  /// An item of a tuple; a tuple is always one piece.
  Ref item(Ref tuple, size_t i) const { return pool_[pieces_[container(tuple).first].begin + i]; }

  /// Iterates over the items of a container.
  class Items {
   public:
    Items(const Graph& graph, uint32_t first_piece) : graph_(&graph), piece_(first_piece) {}
    /// Returns false after the last item.
    bool next(Ref& item) {
      if (piece_ == kNoRef) return false;
      const auto& piece = graph_->pieces_[piece_];
      item = graph_->pool_[piece.begin + used_];
      if (++used_ == piece.count) {
        piece_ = piece.next;
        used_ = 0;
      }
      return true;
    }

   private:
    const Graph* graph_;
    uint32_t piece_;
    uint32_t used_ = 0;
  };
  Items items(Ref node) const { return {*this, container(node).first}; }
  Items no_items() const { return {*this, kNoRef}; }

 private:
  MemoryBudget& budget_;
  ChunkedArray<Node> nodes_;
  ChunkedArray<Container> containers_;
  ChunkedArray<Piece> pieces_;
  ChunkedArray<Ref> pool_;

 public:
  ChunkedArray<StorageMention> storages;
  ChunkedArray<TensorSpec> tensors;
};

/// Checks that the keys of a dict, or the items of a set, can be hashed in Python and are distinct.
class Keys {
 public:
  Keys(Graph& graph, const PickleInput& input) : graph_(graph), input_(input) {}

  /// Throws Refusal. Accepts any other kind of container, as those have no keys.
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

/// Builds the value of a checked graph. `tensors` are the graph's tensors, in its order.
FileValue build_value(const Graph& graph, const PickleInput& input, Ref root,
                      const std::vector<at::Tensor>& tensors);

}  // namespace attentive::pickle
