#include "files/torch/torch_tensors.h"

#include <algorithm>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include "base/refusal.h"
#include "core/memory.h"
#include "files/torch/torch_dtypes.h"
#include "files/zip/crc32.h"

namespace attentive {
namespace {

// The offset of a tensor's last element from its first one, in elements; nothing if it overflows.
std::optional<int64_t> reach(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t step = 0;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return std::nullopt;
    }
  }
  return last;
}

// The bytes of the elements if they were contiguous, with sizes of 0 left out; nothing if that overflows.
// (With strides of 0, a tensor may have more elements than its storage.)
std::optional<int64_t> dense_bytes(const std::vector<int64_t>& sizes, int64_t item) {
  int64_t bytes = item;
  for (const auto size : sizes) {
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return std::nullopt;
  }
  return bytes;
}

bool is_empty(const std::vector<int64_t>& sizes) {
  return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
}

void keep_storage_mapping(void* context) {
  delete static_cast<std::shared_ptr<MappedFile>*>(context);
}

}  // namespace

TorchTensors::TorchTensors(const ByteSource& source, const pickle::Graph& graph,
                           const TorchFileOptions& options)
    : source_(source), graph_(graph), options_(options), storage_of_(graph.storages.size()) {}

uint32_t TorchTensors::add(std::string_view name, uint64_t offset, uint64_t size,
                           std::optional<uint32_t> crc) {
  if (size > options_.limits.max_tensor_bytes - bytes_) {
    refuse("its tensors exceed {} bytes together (max_tensor_bytes)", options_.limits.max_tensor_bytes);
  }
  bytes_ += size;
  stored_.push_back({name, offset, size, options_.checksums ? crc : std::nullopt});
  return static_cast<uint32_t>(stored_.size() - 1);
}

void TorchTensors::assign(size_t index, uint32_t number) {
  const auto& mention = graph_.storages[index];
  auto& stored = stored_[number];
  storage_of_[index] = number;
  const auto item = c10::elementSize(mention.dtype);
  if (stored.size % item != 0 || stored.size / item != static_cast<uint64_t>(mention.numel)) {
    refuse("storage {} is said to have {} elements of {} bytes, but has {} bytes", quoted_name(stored.name),
           mention.numel, item, stored.size);
  }
  // An empty storage may serve tensors of any dtype.
  if (stored.size == 0) return;
  if (stored.dtype && *stored.dtype != mention.dtype) {
    refuse("storage {} is said to be of dtype {} and of dtype {}", quoted_name(stored.name),
           find_torch_dtype(*stored.dtype)->name, find_torch_dtype(mention.dtype)->name);
  }
  stored.dtype = mention.dtype;
}

std::vector<int64_t> TorchTensors::numbers(pickle::Ref tuple) const {
  std::vector<int64_t> values;
  values.reserve(graph_[tuple].size);
  auto items = graph_.items(tuple);
  for (pickle::Ref item = 0; items.next(item);) values.push_back(graph_[item].integer);
  return values;
}

// The part of its storage that a tensor may use, in elements of the tensor's dtype. A view counts in the same
// elements: only typed storages have views, and they have the dtype of their tensors.
TorchTensors::Room TorchTensors::room_of(const pickle::TensorSpec& spec) const {
  const auto& mention = graph_.storages[spec.storage];
  const auto& stored = stored_[storage_of_[spec.storage]];
  if (mention.view_key != pickle::kNoRef) return {mention.view_offset, mention.view_numel};
  return {0, static_cast<int64_t>(stored.size / c10::elementSize(spec.dtype))};
}

void TorchTensors::check(const pickle::TensorSpec& spec) {
  auto& stored = stored_[storage_of_[spec.storage]];
  const auto item = static_cast<int64_t>(c10::elementSize(spec.dtype));
  stored.alignment = std::max(stored.alignment, static_cast<uint64_t>(item));
  stored.holds_bools = stored.holds_bools || spec.dtype == at::kBool;
  const auto sizes = numbers(spec.sizes), strides = numbers(spec.strides);
  const auto room = room_of(spec);
  const auto last = is_empty(sizes) ? 0 : reach(sizes, strides);
  int64_t end = 0;
  if (!last || !dense_bytes(sizes, item) || __builtin_add_overflow(*last, spec.offset, &end)) {
    refuse("the sizes, strides and offset of a tensor in storage {} overflow", quoted_name(stored.name));
  }
  if (!is_empty(sizes) && end >= room.count) {
    refuse("a tensor reaches element {} of storage {}, which has {}", end, quoted_name(stored.name),
           room.count);
  }
}

void TorchTensors::check_sum(const Stored& stored, uint32_t sum) const {
  if (sum != *stored.crc) {
    refuse("storage {} is damaged: its CRC-32 is {:08x}, not {:08x}", quoted_name(stored.name), sum,
           *stored.crc);
  }
}

c10::DataPtr TorchTensors::read_owned(const Stored& stored) const {
  c10::DataPtr data;
  try {
    data = c10::GetCPUAllocator()->allocate(stored.size);
  } catch (const c10::Error&) {
    refuse("there is no memory for the {} bytes of storage {}", stored.size, quoted_name(stored.name));
  }
  prefer_large_pages(data.get(), stored.size);
  if (stored.crc) {
    check_sum(stored, source_.read_and_sum(stored.offset, data.get(), stored.size));
  } else {
    source_.read(stored.offset, data.get(), stored.size);
  }
  return data;
}

c10::DataPtr TorchTensors::read_mapped(const Stored& stored) const {
  auto* bytes = mapping_->data() + stored.offset;
  if (stored.crc) check_sum(stored, crc32(0, bytes, stored.size));
  return {bytes, new std::shared_ptr<MappedFile>(mapping_), &keep_storage_mapping, c10::Device(c10::kCPU)};
}

void TorchTensors::read(Stored& stored) {
  const bool mapped = mapping_ && stored.size > 0 && stored.offset % stored.alignment == 0;
  auto data = mapped ? read_mapped(stored) : read_owned(stored);
  if (stored.holds_bools && !are_bools(data.get(), stored.size)) {
    refuse("storage {} of a bool tensor holds a byte other than 0 and 1", quoted_name(stored.name));
  }
  stored.storage = c10::Storage(c10::Storage::use_byte_size_t(), stored.size, std::move(data),
                                mapped ? nullptr : c10::GetCPUAllocator(), /*resizable=*/!mapped);
}

at::Tensor TorchTensors::make(const pickle::TensorSpec& spec) const {
  const auto& storage = stored_[storage_of_[spec.storage]].storage;
  const auto sizes = numbers(spec.sizes);
  const auto room = room_of(spec);
  // An empty tensor may have any offset; one beyond the storage must not become an address.
  const auto offset = is_empty(sizes) && spec.offset > room.count ? 0 : room.begin + spec.offset;
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                         c10::scalarTypeToTypeMeta(spec.dtype));
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, numbers(spec.strides), offset);
  if (spec.conj) impl->_set_conj(true);
  if (spec.neg) impl->_set_neg(true);
  if (spec.requires_grad) tensor.set_requires_grad(true);
  return tensor;
}

std::vector<at::Tensor> TorchTensors::load() {
  for (size_t i = 0; i < graph_.tensors.size(); ++i) check(graph_.tensors[i]);
  if (options_.map && bytes_ > 0) {
    mapping_ = std::make_shared<MappedFile>(source_.descriptor(), source_.size());
  }
  for (auto& stored : stored_) read(stored);
  std::vector<at::Tensor> tensors;
  tensors.reserve(graph_.tensors.size());
  for (size_t i = 0; i < graph_.tensors.size(); ++i) tensors.push_back(make(graph_.tensors[i]));
  return tensors;
}

}  // namespace attentive
