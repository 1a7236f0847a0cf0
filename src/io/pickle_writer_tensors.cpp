#include "io/pickle_opcodes.h"
#include "io/pickle_writer.h"
#include "io/torch_dtypes.h"

namespace attentive::pickle {
namespace {

// A tensor, or the parameter made of it, in the memo.
std::string memo_key(const char* kind, const at::Tensor& tensor) {
  return fmt::format("{} {}", kind, fmt::ptr(tensor.unsafeGetTensorImpl()));
}

}  // namespace

void Writer::check(const at::Tensor& tensor) const {
  if (!tensor.defined()) fail("an undefined tensor");
  if (tensor.layout() != at::kStrided || tensor.is_nested()) fail("a tensor that is not dense");
  if (tensor.is_quantized()) fail("a quantized tensor");
  if (tensor.is_meta() || !tensor.has_storage()) fail("a tensor without data");
  const auto* dtype = find_torch_dtype(tensor.scalar_type());
  if (dtype == nullptr || !dtype->tensors) {
    fail("a tensor of dtype {}, which is not written here", c10::toString(tensor.scalar_type()));
  }
}

void Writer::put_tensor(const at::Tensor& tensor) {
  check(tensor);
  const auto key = memo_key("tensor", tensor);
  if (get(key)) return;
  const auto* dtype = find_torch_dtype(tensor.scalar_type());
  const bool untyped = dtype->storage.empty();
  global("torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  op(op::Mark);
  put_storage(tensor, untyped ? "" : dtype->storage, untyped ? at::kByte : dtype->dtype);
  put_integer(tensor.storage_offset());
  put_sizes(tensor.sizes());
  put_sizes(tensor.strides());
  put_bool(tensor.requires_grad());
  put_dict({.items = {}, .ordered = true});  // hooks
  if (untyped) put_dtype(tensor.scalar_type());
  put_metadata(tensor);
  op(op::Tuple);
  op(op::Reduce);
  remember(key);
}

void Writer::put_parameter(const TorchValue::Parameter& parameter) {
  check(parameter.data);
  const auto type = parameter.data.scalar_type();
  if (parameter.requires_grad && !at::isFloatingType(type) && !at::isComplexType(type)) {
    fail("a parameter of dtype {} cannot require a gradient", c10::toString(type));
  }
  const auto key = memo_key(parameter.requires_grad ? "parameter" : "frozen parameter", parameter.data);
  if (get(key)) return;
  global("torch._utils", "_rebuild_parameter");
  put_tensor(parameter.data);
  put_bool(parameter.requires_grad);
  put_dict({.items = {}, .ordered = true});
  op(op::Tuple3);
  op(op::Reduce);
  remember(key);
}

void Writer::put_storage(const at::Tensor& tensor, std::string_view type, at::ScalarType dtype) {
  const auto& storage = tensor.storage();
  const auto [entry, fresh] = keys_.try_emplace(storage.unsafeGetStorageImpl(), storages_.size(), dtype);
  if (fresh) storages_.push_back(storage);
  if (storage.nbytes() > 0 && entry->second.second != dtype) {
    fail("a tensor that shares its storage with one of another dtype; Python cannot save it either");
  }
  if (storage.nbytes() % c10::elementSize(dtype) != 0) {
    fail("a storage of {} bytes, which is not a multiple of {}; Python could not load it", storage.nbytes(),
         c10::elementSize(dtype));
  }
  op(op::Mark);
  common_text("storage");
  if (type.empty()) {
    global("torch.storage", "UntypedStorage");
  } else {
    global("torch", type);
  }
  put_text(std::to_string(entry->second.first));
  common_text("cpu");
  put_integer(static_cast<int64_t>(storage.nbytes() / c10::elementSize(dtype)));
  op(op::Tuple);
  op(op::BinPersId);
}

void Writer::put_sizes(at::IntArrayRef sizes) {
  put_tuple(std::vector<TorchValue>(sizes.begin(), sizes.end()));
}

// Whether the numbers are to be read conjugated or negated.
void Writer::put_metadata(const at::Tensor& tensor) {
  TorchValue::Dict metadata;
  if (tensor.is_conj()) metadata.items.emplace_back("conj", true);
  if (tensor.is_neg()) metadata.items.emplace_back("neg", true);
  if (!metadata.items.empty()) put_dict(metadata);
}

}  // namespace attentive::pickle
