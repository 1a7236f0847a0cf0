#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <attentive/files/file_value.h>
#include <attentive/files/torch_file.h>

#include "base/refusal.h"
#include "files/mapped_file.h"

namespace attentive {

/// Counts the memory that the description of a file takes while it is read, against a limit.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit) : limit_(limit) {}

  void charge(uint64_t bytes) {
    if (bytes > limit_ - used_) {
      refuse("its description takes more than {} bytes of memory (max_pickle_bytes)", limit_);
    }
    used_ += bytes;
  }
  void release(uint64_t bytes) { used_ -= bytes; }

 private:
  uint64_t limit_;
  uint64_t used_ = 0;
};

/// Reserves a part of the budget during its lifetime.
class BudgetShare {
 public:
  BudgetShare(MemoryBudget& budget, uint64_t bytes) : budget_(budget), bytes_(bytes) { budget.charge(bytes); }
  ~BudgetShare() { budget_.release(bytes_); }
  BudgetShare(const BudgetShare&) = delete;
  BudgetShare& operator=(const BudgetShare&) = delete;

 private:
  MemoryBudget& budget_;
  uint64_t bytes_;
};

/// A growing array of trivial values, each of which counts against a budget while it is in the array. It is
/// stored in chunks and never copied to grow: a copy would need memory for the old and the new array, which
/// nobody counts.
template <class T>
class ChunkedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  static constexpr size_t kChunk = 4096;  // values

 public:
  explicit ChunkedArray(MemoryBudget& budget) : budget_(budget) {}
  ~ChunkedArray() { budget_.release(size_ * sizeof(T)); }
  ChunkedArray(const ChunkedArray&) = delete;
  ChunkedArray& operator=(const ChunkedArray&) = delete;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return chunks_[i / kChunk][i % kChunk]; }
  const T& operator[](size_t i) const { return chunks_[i / kChunk][i % kChunk]; }
  T& back() { return (*this)[size_ - 1]; }

  void push_back(T value) {
    budget_.charge(sizeof(T));
    if (size_ == chunks_.size() * kChunk) chunks_.push_back(std::make_unique_for_overwrite<T[]>(kChunk));
    (*this)[size_++] = value;
  }

  void shrink(size_t size) {
    budget_.release((size_ - size) * sizeof(T));
    size_ = size;
    // One spare chunk, for an array that grows and shrinks around its end.
    const auto spare = size_ / kChunk + 2;
    if (chunks_.size() > spare) chunks_.resize(spare);
  }

 private:
  MemoryBudget& budget_;
  std::vector<std::unique_ptr<T[]>> chunks_;
  size_t size_ = 0;
};

}  // namespace attentive

namespace attentive::pickle {

// The opcodes of pickle protocols 2 to 5 (CPython, Lib/pickletools.py) that are read or written here.
namespace op {

enum Opcode : unsigned char {
  Proto = 0x80,
  Frame = 0x95,
  Stop = '.',
  Mark = '(',
  None = 'N',
  NewTrue = 0x88,
  NewFalse = 0x89,
  BinInt = 'J',
  BinInt1 = 'K',
  BinInt2 = 'M',
  Long1 = 0x8A,
  Long4 = 0x8B,
  BinFloat = 'G',
  BinString = 'T',
  ShortBinString = 'U',
  BinUnicode = 'X',
  ShortBinUnicode = 0x8C,
  BinUnicode8 = 0x8D,
  BinBytes = 'B',
  ShortBinBytes = 'C',
  BinBytes8 = 0x8E,
  ByteArray8 = 0x96,
  EmptyList = ']',
  Append = 'a',
  Appends = 'e',
  EmptyTuple = ')',
  Tuple = 't',
  Tuple1 = 0x85,
  Tuple2 = 0x86,
  Tuple3 = 0x87,
  EmptyDict = '}',
  SetItem = 's',
  SetItems = 'u',
  EmptySet = 0x8F,
  AddItems = 0x90,
  FrozenSet = 0x91,
  BinGet = 'h',
  LongBinGet = 'j',
  BinPut = 'q',
  LongBinPut = 'r',
  Memoize = 0x94,
  Global = 'c',
  StackGlobal = 0x93,
  Reduce = 'R',
  Build = 'b',
  BinPersId = 'Q',
};

}  // namespace op

/// A range of a file's bytes that holds one or more pickles. Bytes are read into memory as they are taken,
/// and stay there.
class PickleInput {
 public:
  /// Uses the bytes [begin, end) of `source`, which must outlive this object. At most `limit` of them may be
  /// taken.
  PickleInput(const ByteSource& source, uint64_t begin, uint64_t end, uint64_t limit)
      : source_(source), begin_(begin), size_(end - begin), limit_(limit) {}

  /// Reads all of them into memory and returns their CRC-32.
  uint32_t load_all();

  /// Takes `count` bytes; the pointer is valid until the next call. Throws Refusal if there are fewer.
  const char* take(uint64_t count);
  /// Takes the bytes up to a line feed, at most `longest`, and skips the line feed.
  std::string_view take_line(uint64_t longest);

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return size_ - position_; }
  /// Bytes that were taken before.
  std::string_view text(uint64_t offset, uint64_t size) const { return {bytes_.get() + offset, size}; }

 private:
  void reserve();
  void load(uint64_t count);

  const ByteSource& source_;
  uint64_t begin_;
  uint64_t size_;
  uint64_t limit_;
  uint64_t loaded_ = 0;
  uint64_t position_ = 0;
  std::unique_ptr<char, decltype(&std::free)> bytes_{nullptr, &std::free};
};

/// The decimal digits, with a minus sign for negative numbers, of a two's complement integer in little-endian
/// order.
std::string decimal_of(std::string_view bytes);

/// The shortest two's complement, little-endian, of a decimal text with an optional minus sign. Empty if the
/// text is not a number or needs more than `max_bytes`.
std::string bytes_of(std::string_view decimal, size_t max_bytes);

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

/// Builds the value of a checked graph. `tensors` are the graph's tensors, in its order.
FileValue build_value(const Graph& graph, const PickleInput& input, Ref root,
                      const std::vector<at::Tensor>& tensors);

/// The known classes and functions of pickles. None is imported: names are compared with a list.
enum class Global : uint8_t {
  OrderedDict,
  Counter,
  Set,
  FrozenSet,
  Bytes,
  ByteArray,
  Complex,
  Size,
  Device,
  Encode,
  GetLayout,
  RebuildTensor,
  RebuildTensorV2,
  RebuildTensorV3,
  RebuildParameter,
  RebuildParameterWithState,
  RebuildFromType,
  TensorType,
  ParameterType,
  UntypedStorage,
  TypedStorage,  ///< one class a dtype
  Dtype,         ///< not a class: a value
};

struct NamedGlobal {
  Global global;
  at::ScalarType dtype = at::kByte;  ///< the dtype of a typed storage, or the dtype itself
};

/// Finds a global by name. Throws Refusal, naming the global, if this package does not read it.
NamedGlobal find_global(std::string_view module, std::string_view name);

/// Refuses what cannot become a FileValue: a container that contains itself, containers nested deeper than
/// `max_depth`, more values than `max_values` or longer strings than `max_pickle_bytes` (each mention of a
/// shared value counts), keys that cannot be hashed or that occur twice, and a storage, class or function as
/// a value. Time and memory are proportional to the graph, not to the expanded value.
void check_values(Graph& graph, const PickleInput& input, Ref root, const TorchFileLimits& limits);

struct CallOptions {
  /// The number of items that describe a storage: 5 in a zip archive, 6 in the format before PyTorch 1.6, 0
  /// if the pickle may not have storages.
  size_t storage_items = 0;
  int64_t max_tensors = 0;
};

/// Evaluates the classes and functions that a pickle calls. Throws Refusal for arguments that `torch.save`
/// would not have written. Does not check that a tensor fits into its storage.
class Calls {
 public:
  Calls(Graph& graph, const PickleInput& input, const CallOptions& options)
      : graph_(graph), input_(input), options_(options) {}

  /// Calls `global`; `arguments` is a tuple.
  Ref call(Ref global, Ref arguments);
  /// The storage that a persistent id describes.
  Ref storage(Ref id);

 private:
  Ref ordered_dict(Ref pairs);
  Ref bytearray(Ref arguments, size_t count);
  Ref encode(Ref characters, Ref encoding);
  Ref size(Ref tuple);
  Ref device(Ref type, int64_t index);
  Ref parameter(Ref arguments);
  Ref tensor_with_attributes(Ref arguments);
  Ref tensor(Ref arguments, size_t count);
  Ref tensor_of_dtype(Ref arguments, size_t count);
  TensorSpec geometry(Ref arguments) const;
  Ref add_tensor(const TensorSpec& spec);
  void check_gradient(at::ScalarType dtype, bool requires_grad) const;
  void check_hooks(Ref hooks) const;
  void set_metadata(Ref dict, TensorSpec& spec) const;
  void set_view(Ref view, StorageMention& mention) const;

  std::string_view text(Ref ref) const { return input_.text(graph_[ref].offset, graph_[ref].size); }
  int64_t integer(Ref ref, const char* what) const;
  int64_t count_of(Ref ref, const char* what) const;
  bool boolean(Ref ref, const char* what) const;
  void expect(Ref ref, Kind kind, const char* what) const;

  Graph& graph_;
  const PickleInput& input_;
  CallOptions options_;
};

/// Reads one pickle into a graph: protocols 2 to 5, and the opcodes that CPython's pickler writes for the
/// values of `Kind`. Executes and imports nothing, and does not recurse.
///
/// Throws Refusal, with the byte's position, for anything else: an opcode or a global that is not read here,
/// a stack or memo with fewer values than an opcode needs, a string that is not UTF-8, an integer of more
/// than 1024 bytes.
class Unpickler {
 public:
  Unpickler(PickleInput& input, Graph& graph, const CallOptions& options);

  /// Reads the pickle at the current position of the input, and moves the position behind it.
  Ref load();

 private:
  void step(unsigned char opcode);

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, input_.take(sizeof(value)), sizeof(value));
    return value;
  }
  template <class Call>
  auto located(Call run);
  void push(Ref value) { stack_.push_back(value); }
  Ref pop();
  Ref top();
  size_t pop_mark();
  void push_tuple(size_t count);
  void push_items(Kind kind, size_t first);
  void extend(Kind wanted, size_t first);
  void push_text(Kind kind, uint64_t size);
  void push_long(uint64_t size);
  void push_global(std::string_view module, std::string_view name);
  void get(uint64_t index);
  void put(uint64_t index);
  void reduce();

  template <class... Arguments>
  [[noreturn]] void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    refuse("its pickle, byte {}: {}", at_, fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  PickleInput& input_;
  Graph& graph_;
  Calls calls_;
  ChunkedArray<Ref> stack_;
  ChunkedArray<uint32_t> marks_;
  ChunkedArray<Ref> memo_;
  uint64_t at_ = 0;  // the position of the current opcode
};

}  // namespace attentive::pickle
