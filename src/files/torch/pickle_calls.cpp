#include <algorithm>
#include <initializer_list>
#include <string>

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include "base/refusal.h"
#include "files/dtypes.h"
#include "files/torch/pickle.h"

namespace attentive::pickle {

void Calls::expect(Ref ref, Kind kind, const char* what) const {
  const auto got = graph_[ref].kind;
  if (got != kind) refuse("expected {} to be {}, got {}", what, kind_name(kind), kind_name(got));
}

int64_t Calls::integer(Ref ref, const char* what) const {
  expect(ref, Kind::Int, what);
  return graph_[ref].integer;
}

bool Calls::boolean(Ref ref, const char* what) const {
  expect(ref, Kind::Bool, what);
  return graph_[ref].detail != 0;
}

Ref Calls::call(Ref global, Ref arguments) {
  const auto count = graph_[arguments].size;
  const auto want = [&](std::initializer_list<size_t> counts, const char* what) {
    if (std::find(counts.begin(), counts.end(), count) == counts.end()) {
      refuse("{} cannot be made of {} arguments", what, count);
    }
  };
  const auto argument = [&](size_t i) { return graph_.item(arguments, i); };
  switch (static_cast<Global>(graph_[global].index)) {
    case Global::OrderedDict:
      want({0, 1}, "an OrderedDict");
      return count == 0 ? graph_.add_container(Kind::OrderedDict) : ordered_dict(argument(0));
    case Global::Counter:
      want({0, 1}, "a Counter");
      if (count == 0) return graph_.add_container(Kind::Dict);
      expect(argument(0), Kind::Dict, "the argument of Counter");
      return graph_.copy_container(Kind::Dict, argument(0));
    case Global::Set:
    case Global::FrozenSet:
      want({0, 1}, "a set");
      if (count == 0) return graph_.add_container(Kind::Set);
      expect(argument(0), Kind::List, "the argument of set");
      return graph_.copy_container(Kind::Set, argument(0));
    case Global::Bytes:
      want({0}, "bytes");
      return graph_.add_text(Kind::Bytes, 0, 0);
    case Global::ByteArray:
      want({0, 1, 2}, "a bytearray");
      return bytearray(arguments, count);
    case Global::Complex:
      want({2}, "a complex number");
      expect(argument(0), Kind::Float, "the real part");
      expect(argument(1), Kind::Float, "the imaginary part");
      return graph_.add({.kind = Kind::Complex, .size = argument(0), .index = argument(1)});
    case Global::Size:
      want({1}, "a torch.Size");
      return size(argument(0));
    case Global::Device:
      want({1, 2}, "a torch.device");
      return device(argument(0), count == 2 ? integer(argument(1), "the index of a device") : -1);
    case Global::Encode:
      want({2}, "bytes");
      return encode(argument(0), argument(1));
    case Global::GetLayout:
      want({1}, "a torch.layout");
      expect(argument(0), Kind::Text, "the name of a layout");
      if (text(argument(0)) != "torch.strided") {
        refuse("layout {} is not read here", quoted_name(text(argument(0))));
      }
      return graph_.add(Kind::Layout);
    case Global::RebuildTensor:
      want({4}, "a tensor");
      return tensor(arguments, count);
    case Global::RebuildTensorV2:
      want({6, 7}, "a tensor");
      return tensor(arguments, count);
    case Global::RebuildTensorV3:
      want({7, 8}, "a tensor");
      return tensor_of_dtype(arguments, count);
    case Global::RebuildParameter:
      want({3}, "a parameter");
      return parameter(arguments);
    case Global::RebuildParameterWithState:
      want({4}, "a parameter");
      return parameter(arguments);
    case Global::RebuildFromType:
      want({4}, "a tensor with attributes");
      return tensor_with_attributes(arguments);
    default:
      refuse("it calls something that is not a function here");
  }
}

// Python 2's pickles give the items as a list of pairs.
Ref Calls::ordered_dict(Ref pairs) {
  expect(pairs, Kind::List, "the argument of OrderedDict");
  const auto dict = graph_.add_container(Kind::OrderedDict);
  auto items = graph_.items(pairs);
  for (Ref pair = 0; items.next(pair);) {
    const auto kind = graph_[pair].kind;
    if ((kind != Kind::List && kind != Kind::Tuple) || graph_[pair].size != 2) {
      refuse("expected the argument of OrderedDict to hold pairs, got {}", kind_name(kind));
    }
    auto both = graph_.items(pair);
    for (Ref item = 0; both.next(item);) graph_.append(dict, item);
  }
  return dict;
}

Ref Calls::bytearray(Ref arguments, size_t count) {
  if (count == 0) return graph_.add_text(Kind::Bytes, 0, 0);
  if (count == 2) return encode(graph_.item(arguments, 0), graph_.item(arguments, 1));
  const auto bytes = graph_.item(arguments, 0);
  if (!graph_.is(bytes, Kind::Bytes)) expect(bytes, Kind::Latin1, "the argument of bytearray");
  return bytes;
}

// Protocol 2 has no bytes: each byte is written as the character with its code, in UTF-8.
Ref Calls::encode(Ref characters, Ref encoding) {
  expect(characters, Kind::Text, "bytes");
  expect(encoding, Kind::Text, "an encoding");
  if (text(encoding) != "latin1" && text(encoding) != "latin-1") {
    refuse("bytes in encoding {} are not read here", quoted_name(text(encoding)));
  }
  for (const unsigned char byte : text(characters)) {
    if (byte > 0xC3) refuse("bytes that hold a character beyond U+00FF");
  }
  return graph_.add_text(Kind::Latin1, graph_[characters].offset, graph_[characters].size);
}

Ref Calls::size(Ref tuple) {
  expect(tuple, Kind::Tuple, "the argument of torch.Size");
  auto items = graph_.items(tuple);
  for (Ref item = 0; items.next(item);) (void)integer(item, "an item of a torch.Size");
  return tuple;
}

Ref Calls::device(Ref type, int64_t index) {
  expect(type, Kind::Text, "the type of a device");
  if (index < -1 || index > 127) refuse("a device cannot have index {}", index);
  try {
    const c10::Device device(std::string(text(type)));
    if (device.has_index()) refuse("the device type {} has an index", quoted_name(text(type)));
    return graph_.add(
        {.kind = Kind::Device, .detail = static_cast<uint8_t>(device.type()), .integer = index});
  } catch (const c10::Error&) {
    refuse("there is no device type {}", quoted_name(text(type)));
  }
}

Ref Calls::parameter(Ref arguments) {
  const auto data = graph_.item(arguments, 0);
  expect(data, Kind::Tensor, "the data of a parameter");
  const auto& spec = graph_.tensors[graph_[data].index];
  const bool requires_grad = boolean(graph_.item(arguments, 1), "requires_grad of a parameter");
  check_gradient(spec.dtype, requires_grad);
  check_hooks(graph_.item(arguments, 2));
  return graph_.add({.kind = Kind::Parameter, .detail = requires_grad, .index = data});
}

// Restores a tensor or parameter and drops its additional attributes.
Ref Calls::tensor_with_attributes(Ref arguments) {
  const auto function = graph_.item(arguments, 0), type = graph_.item(arguments, 1);
  expect(function, Kind::Global, "what rebuilds a tensor");
  expect(type, Kind::Global, "the type of a tensor");
  const auto rebuilds = static_cast<Global>(graph_[function].index);
  if (rebuilds < Global::RebuildTensor || rebuilds > Global::RebuildParameterWithState) {
    refuse("a tensor with attributes is rebuilt by a function that makes no tensor");
  }
  const auto wanted = rebuilds < Global::RebuildParameter ? Global::TensorType : Global::ParameterType;
  if (static_cast<Global>(graph_[type].index) != wanted)
    refuse("a tensor of another class than torch.Tensor");
  expect(graph_.item(arguments, 2), Kind::Tuple, "the arguments of a tensor");
  return call(function, graph_.item(arguments, 2));
}

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

}  // namespace attentive::pickle
