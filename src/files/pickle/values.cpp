#include <string>

#include "base/refusal.h"
#include "files/pickle/calls.h"
#include "files/pickle/checks.h"
#include "files/pickle/graph.h"
#include "files/pickle/input.h"
#include "files/torch/torch_dtypes.h"

namespace attentive::pickle {
namespace {

constexpr uint32_t kMaxRank = 64;

}  // namespace

// A storage's persistent id: ("storage", class, key, location, numel); before PyTorch 1.6 followed by None or
// by the (key, offset, numel) of a view. The location, the device it was saved from, is ignored.
Ref Calls::storage(Ref id) {
  if (options_.storage_items == 0) refuse("a tensor where none is allowed");
  expect(id, Kind::Tuple, "a persistent id");
  if (graph_[id].size == 0) refuse("an empty persistent id");
  expect(graph_.item(id, 0), Kind::Text, "the type of a persistent id");
  if (text(graph_.item(id, 0)) != "storage") {
    refuse("a persistent id of type {}: only storages are read", quoted_name(text(graph_.item(id, 0))));
  }
  if (graph_[id].size != options_.storage_items) {
    refuse("expected a storage to be described by {} values, got {}", options_.storage_items,
           graph_[id].size);
  }
  StorageMention mention;
  const auto type = graph_.item(id, 1);
  expect(type, Kind::Global, "the class of a storage");
  mention.dtype = static_cast<at::ScalarType>(graph_[type].detail);
  mention.untyped = static_cast<Global>(graph_[type].index) == Global::UntypedStorage;
  if (!mention.untyped && static_cast<Global>(graph_[type].index) != Global::TypedStorage) {
    refuse("a storage of a class that is not a storage class");
  }
  mention.key = graph_.item(id, 2);
  expect(mention.key, Kind::Text, "the key of a storage");
  expect(graph_.item(id, 3), Kind::Text, "the location of a storage");
  mention.numel = count_of(graph_.item(id, 4), "the size of a storage");
  if (options_.storage_items > 5 && !graph_.is(graph_.item(id, 5), Kind::None)) {
    set_view(graph_.item(id, 5), mention);
  }
  graph_.storages.push_back(mention);
  return graph_.add({.kind = Kind::Storage, .index = graph_.storages.size() - 1});
}

void Calls::set_view(Ref view, StorageMention& mention) const {
  expect(view, Kind::Tuple, "the view of a storage");
  if (mention.untyped) refuse("a view of an untyped storage");
  if (graph_[view].size != 3) refuse("expected 3 values of a storage's view, got {}", graph_[view].size);
  mention.view_key = graph_.item(view, 0);
  expect(mention.view_key, Kind::Text, "the key of a storage's view");
  mention.view_offset = count_of(graph_.item(view, 1), "the offset of a storage's view");
  mention.view_numel = count_of(graph_.item(view, 2), "the size of a storage's view");
  if (mention.view_offset > mention.numel || mention.view_numel > mention.numel - mention.view_offset) {
    refuse("a view of {} at {} leaves its storage of {}", mention.view_numel, mention.view_offset,
           mention.numel);
  }
}

int64_t Calls::count_of(Ref ref, const char* what) const {
  const auto value = integer(ref, what);
  if (value < 0) refuse("{} is negative: {}", what, value);
  return value;
}

// (storage, offset, sizes, strides): the first four arguments of every tensor.
TensorSpec Calls::geometry(Ref arguments) const {
  TensorSpec spec;
  const auto storage = graph_.item(arguments, 0);
  expect(storage, Kind::Storage, "the storage of a tensor");
  spec.storage = static_cast<uint32_t>(graph_[storage].index);
  spec.offset = count_of(graph_.item(arguments, 1), "the storage offset of a tensor");
  spec.sizes = graph_.item(arguments, 2);
  spec.strides = graph_.item(arguments, 3);
  for (const auto tuple : {spec.sizes, spec.strides}) {
    expect(tuple, Kind::Tuple, "the sizes and strides of a tensor");
    if (graph_[tuple].size > kMaxRank) {
      refuse("a tensor of {} dimensions exceeds the limit of {}", graph_[tuple].size, kMaxRank);
    }
    auto items = graph_.items(tuple);
    for (Ref item = 0; items.next(item);) (void)count_of(item, "a size or stride of a tensor");
  }
  if (graph_[spec.sizes].size != graph_[spec.strides].size) {
    refuse("a tensor of {} sizes has {} strides", graph_[spec.sizes].size, graph_[spec.strides].size);
  }
  return spec;
}

// Further arguments: (…, requires_grad, hooks[, metadata]); very old files have the geometry only.
Ref Calls::tensor(Ref arguments, size_t count) {
  auto spec = geometry(arguments);
  const auto& storage = graph_.storages[spec.storage];
  if (storage.untyped) refuse("a tensor of an untyped storage lacks its dtype");
  spec.dtype = storage.dtype;
  if (count > 4) {
    spec.requires_grad = boolean(graph_.item(arguments, 4), "requires_grad of a tensor");
    check_hooks(graph_.item(arguments, 5));
  }
  if (count > 6) set_metadata(graph_.item(arguments, 6), spec);
  return add_tensor(spec);
}

// Further arguments: (…, requires_grad, hooks, dtype[, metadata]).
Ref Calls::tensor_of_dtype(Ref arguments, size_t count) {
  auto spec = geometry(arguments);
  spec.requires_grad = boolean(graph_.item(arguments, 4), "requires_grad of a tensor");
  check_hooks(graph_.item(arguments, 5));
  expect(graph_.item(arguments, 6), Kind::Dtype, "the dtype of a tensor");
  spec.dtype = static_cast<at::ScalarType>(graph_[graph_.item(arguments, 6)].detail);
  const auto* dtype = find_torch_dtype(spec.dtype);
  if (!dtype->tensors) refuse("a tensor of dtype {} has no data", dtype->name);
  const auto& storage = graph_.storages[spec.storage];
  if (!storage.untyped && storage.dtype != spec.dtype) {
    refuse("a tensor of dtype {} in a storage of dtype {}", dtype->name,
           find_torch_dtype(storage.dtype)->name);
  }
  if (count > 7) set_metadata(graph_.item(arguments, 7), spec);
  return add_tensor(spec);
}

Ref Calls::add_tensor(const TensorSpec& spec) {
  check_gradient(spec.dtype, spec.requires_grad);
  if (graph_.tensors.size() >= static_cast<uint64_t>(options_.max_tensors)) {
    refuse("it holds more than {} tensors (max_tensors)", options_.max_tensors);
  }
  graph_.tensors.push_back(spec);
  return graph_.add({.kind = Kind::Tensor, .index = graph_.tensors.size() - 1});
}

void Calls::check_gradient(at::ScalarType dtype, bool requires_grad) const {
  if (requires_grad && !at::isFloatingType(dtype) && !at::isComplexType(dtype)) {
    refuse("a tensor of dtype {} requires a gradient", find_torch_dtype(dtype)->name);
  }
}

// The hooks must be empty, because torch.save writes none.
void Calls::check_hooks(Ref hooks) const {
  if (graph_.is(hooks, Kind::None)) return;
  if (!graph_.is_dict(hooks) || graph_[hooks].size != 0) refuse("a tensor with backward hooks");
}

// Reads the flags for pending conjugation and negation.
void Calls::set_metadata(Ref dict, TensorSpec& spec) const {
  if (graph_.is(dict, Kind::None)) return;
  expect(dict, Kind::Dict, "the metadata of a tensor");
  auto items = graph_.items(dict);
  for (Ref key = 0, value = 0; items.next(key) && items.next(value);) {
    expect(key, Kind::Text, "a key of a tensor's metadata");
    const bool set = boolean(value, "metadata of a tensor");
    if (text(key) == "conj" && (!set || at::isComplexType(spec.dtype))) {
      spec.conj = set;
    } else if (text(key) == "neg") {
      spec.neg = set;
    } else {
      refuse("metadata {} of a tensor are not read here", quoted_name(text(key)));
    }
  }
}

namespace {

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

FileValue build_value(const Graph& graph, const PickleInput& input, Ref root,
                      const std::vector<at::Tensor>& tensors) {
  return Builder(graph, input, tensors).run(root);
}

}  // namespace attentive::pickle
