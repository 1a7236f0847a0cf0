#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>
#include <fmt/format.h>

#include <attentive/files/torch_file.h>

#include "base/files.h"
#include "base/refusal.h"
#include "files/dtypes.h"
#include "files/torch/pickle.h"
#include "files/torch/zip.h"

namespace attentive::pickle {
namespace {

constexpr int kProtocol = 2;
constexpr int kMaxDepth = 1000;
constexpr size_t kLongestWrittenInteger = 255;  // bytes; torch.load reads no longer ones

// The shortest two's complement of an integer.
std::string bytes_of_integer(int64_t value) {
  std::string bytes(reinterpret_cast<const char*>(&value), sizeof(value));
  const char sign = value < 0 ? '\xFF' : '\0';
  while (bytes.size() > 1 && bytes.back() == sign && ((bytes[bytes.size() - 2] ^ sign) & 0x80) == 0) {
    bytes.pop_back();
  }
  return bytes;
}

// Writes each byte as the character with its code, in UTF-8.
std::string to_latin1(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    if (value >= 0x80) text += static_cast<char>(0xC0 | (value >> 6));
    text += static_cast<char>(value >= 0x80 ? 0x80 | (value & 0x3F) : value);
  }
  return text;
}

std::string place_of(const FileValue& key, size_t index) {
  return key.is<std::string>() ? quoted_name(key.as<std::string>()) : fmt::format("key {}", index);
}

// Writes a value as `torch.save` does: pickle protocol 2, tensors over storages that are numbered "0", "1",
// … in the order in which they occur. Throws Refusal, naming the path of the value, for a tensor or number
// that cannot be represented, and for containers nested deeper than 1000.
class Writer {
 public:
  // Writes the pickle of a value. May be called once.
  std::string write(const FileValue& value);

  // The storages that the pickle refers to, by key.
  const std::vector<c10::Storage>& storages() const { return storages_; }

 private:
  void put(const FileValue& value);
  bool put_leaf(const FileValue& value);
  void put_container(const FileValue& value);
  void put_items(const std::vector<FileValue>& items);
  void put_list(const std::vector<FileValue>& items);
  void put_tuple(const std::vector<FileValue>& items);
  void put_dict(const FileValue::Dict& dict);
  void put_bool(bool value);
  void put_integer(int64_t value);
  void put_long(std::string_view bytes);
  void put_float(double value);
  void put_text(std::string_view text);
  void put_bytes(std::string_view bytes);
  void put_device(c10::Device device);
  void put_dtype(at::ScalarType dtype);

  void put_tensor(const at::Tensor& tensor);
  void put_parameter(const FileValue::Parameter& parameter);
  void put_storage(const at::Tensor& tensor, std::string_view type, at::ScalarType dtype);
  void put_sizes(at::IntArrayRef sizes);
  void put_metadata(const at::Tensor& tensor);
  void check(const at::Tensor& tensor) const;

  void op(int opcode) { out_ += static_cast<char>(opcode); }
  template <class T>
  void number(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void global(std::string_view module, std::string_view name);
  void common_text(const std::string& text);
  bool get(const std::string& key);
  void remember(const std::string& key);
  template <class... Arguments>
  [[noreturn]] void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    refuse("{}: {}", place_.empty() ? "the value" : place_,
           fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  std::string out_;
  std::string place_;  // the keys and indices that lead to the current value
  int depth_ = 0;
  std::unordered_map<std::string, uint32_t> memo_;
  std::unordered_map<const c10::StorageImpl*, std::pair<size_t, at::ScalarType>> keys_;
  std::vector<c10::Storage> storages_;
};

std::string Writer::write(const FileValue& value) {
  op(op::Proto);
  op(kProtocol);
  put(value);
  op(op::Stop);
  return std::move(out_);
}

void Writer::put(const FileValue& value) {
  if (put_leaf(value)) return;
  if (depth_ == kMaxDepth) fail("containers nested deeper than {}", kMaxDepth);
  ++depth_;
  put_container(value);
  --depth_;
}

bool Writer::put_leaf(const FileValue& value) {
  if (value.is<FileValue::None>()) {
    op(op::None);
  } else if (value.is<bool>()) {
    put_bool(value.as<bool>());
  } else if (value.is<int64_t>()) {
    put_integer(value.as<int64_t>());
  } else if (value.is<double>()) {
    put_float(value.as<double>());
  } else if (value.is<std::complex<double>>()) {
    global("__builtin__", "complex");
    put_float(value.as<std::complex<double>>().real());
    put_float(value.as<std::complex<double>>().imag());
    op(op::Tuple2);
    op(op::Reduce);
  } else if (value.is<std::string>()) {
    put_text(value.as<std::string>());
  } else if (value.is<at::Tensor>()) {
    put_tensor(value.as<at::Tensor>());
  } else if (value.is<FileValue::Parameter>()) {
    put_parameter(value.as<FileValue::Parameter>());
  } else if (value.is<at::ScalarType>()) {
    put_dtype(value.as<at::ScalarType>());
  } else if (value.is<c10::Device>()) {
    put_device(value.as<c10::Device>());
  } else if (value.is<at::Layout>()) {
    if (value.as<at::Layout>() != at::kStrided) fail("a layout other than strided");
    global("torch.serialization", "_get_layout");
    put_text("torch.strided");
    op(op::Tuple1);
    op(op::Reduce);
  } else if (value.is<FileValue::Bytes>()) {
    put_bytes(value.as<FileValue::Bytes>().bytes);
  } else if (value.is<FileValue::Integer>()) {
    const auto& digits = value.as<FileValue::Integer>().digits;
    const auto bytes = bytes_of(digits, kLongestWrittenInteger);
    if (bytes.empty()) {
      fail("expected decimal digits of an integer of at most {} bytes, got {}", kLongestWrittenInteger,
           quoted_name(digits));
    }
    put_long(bytes);
  } else {
    return false;
  }
  return true;
}

void Writer::put_container(const FileValue& value) {
  if (value.is<FileValue::List>()) {
    put_list(value.as<FileValue::List>().items);
  } else if (value.is<FileValue::Tuple>()) {
    put_tuple(value.as<FileValue::Tuple>().items);
  } else if (value.is<FileValue::Set>()) {
    global("__builtin__", "set");
    put_list(value.as<FileValue::Set>().items);
    op(op::Tuple1);
    op(op::Reduce);
  } else {
    put_dict(value.as<FileValue::Dict>());
  }
}

void Writer::put_items(const std::vector<FileValue>& items) {
  const auto above = place_.size();
  for (size_t i = 0; i < items.size(); ++i) {
    place_ += fmt::format("[{}]", i);
    put(items[i]);
    place_.resize(above);
  }
}

void Writer::put_list(const std::vector<FileValue>& items) {
  op(op::EmptyList);
  if (items.empty()) return;
  op(op::Mark);
  put_items(items);
  op(op::Appends);
}

void Writer::put_tuple(const std::vector<FileValue>& items) {
  if (items.size() > 3) op(op::Mark);
  put_items(items);
  constexpr int kBySize[] = {op::EmptyTuple, op::Tuple1, op::Tuple2, op::Tuple3};
  op(items.size() > 3 ? static_cast<int>(op::Tuple) : kBySize[items.size()]);
}

void Writer::put_dict(const FileValue::Dict& dict) {
  if (dict.ordered) {
    global("collections", "OrderedDict");
    op(op::EmptyTuple);
    op(op::Reduce);
  } else {
    op(op::EmptyDict);
  }
  if (dict.items.empty()) return;
  op(op::Mark);
  const auto above = place_.size();
  for (size_t i = 0; i < dict.items.size(); ++i) {
    const auto& [key, value] = dict.items[i];
    place_ += fmt::format("[{}]", place_of(key, i));
    put(key);
    put(value);
    place_.resize(above);
  }
  op(op::SetItems);
}

void Writer::put_bool(bool value) {
  op(value ? op::NewTrue : op::NewFalse);
}

void Writer::put_integer(int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<uint8_t>::max()) {
    op(op::BinInt1);
    number(static_cast<uint8_t>(value));
  } else if (value >= 0 && value <= std::numeric_limits<uint16_t>::max()) {
    op(op::BinInt2);
    number(static_cast<uint16_t>(value));
  } else if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
    op(op::BinInt);
    number(static_cast<int32_t>(value));
  } else {
    put_long(bytes_of_integer(value));
  }
}

void Writer::put_long(std::string_view bytes) {
  op(op::Long1);
  number(static_cast<uint8_t>(bytes.size()));
  out_ += bytes;
}

void Writer::put_float(double value) {
  auto bytes = std::bit_cast<std::array<char, sizeof(double)>>(value);
  std::reverse(bytes.begin(), bytes.end());  // stored as big-endian
  op(op::BinFloat);
  out_.append(bytes.data(), bytes.size());
}

void Writer::put_text(std::string_view text) {
  if (text.size() > std::numeric_limits<uint32_t>::max()) fail("a string of {} bytes", text.size());
  op(op::BinUnicode);
  number(static_cast<uint32_t>(text.size()));
  out_ += text;
}

void Writer::put_bytes(std::string_view bytes) {
  global("_codecs", "encode");
  put_text(to_latin1(bytes));
  common_text("latin1");
  op(op::Tuple2);
  op(op::Reduce);
}

void Writer::put_device(c10::Device device) {
  global("torch", "device");
  put_text(c10::DeviceTypeName(device.type(), /*lower_case=*/true));
  if (device.has_index()) put_integer(device.index());
  op(device.has_index() ? op::Tuple2 : op::Tuple1);
  op(op::Reduce);
}

void Writer::put_dtype(at::ScalarType dtype) {
  const auto* known = find_torch_dtype(dtype);
  if (known == nullptr) fail("dtype {} is not written here", c10::toString(dtype));
  global("torch", known->name);
}

void Writer::global(std::string_view module, std::string_view name) {
  const auto line = fmt::format("{}\n{}\n", module, name);
  if (get(line)) return;
  op(op::Global);
  out_ += line;
  remember(line);
}

// Writes a frequent text once and then refers to it by the memo.
void Writer::common_text(const std::string& text) {
  if (get(text)) return;
  put_text(text);
  remember(text);
}

bool Writer::get(const std::string& key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) return false;
  if (found->second <= std::numeric_limits<uint8_t>::max()) {
    op(op::BinGet);
    number(static_cast<uint8_t>(found->second));
  } else {
    op(op::LongBinGet);
    number(found->second);
  }
  return true;
}

void Writer::remember(const std::string& key) {
  const auto index = static_cast<uint32_t>(memo_.size());
  memo_.emplace(key, index);
  if (index <= std::numeric_limits<uint8_t>::max()) {
    op(op::BinPut);
    number(static_cast<uint8_t>(index));
  } else {
    op(op::LongBinPut);
    number(index);
  }
}

// The memo key of a tensor, or of the parameter made from it.
std::string memo_key(const char* kind, const at::Tensor& tensor) {
  return fmt::format("{} {}", kind, fmt::ptr(tensor.unsafeGetTensorImpl()));
}

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
  put_dict({.items = {}, .ordered = true});  // no hooks
  if (untyped) put_dtype(tensor.scalar_type());
  put_metadata(tensor);
  op(op::Tuple);
  op(op::Reduce);
  remember(key);
}

void Writer::put_parameter(const FileValue::Parameter& parameter) {
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
  put_tuple(std::vector<FileValue>(sizes.begin(), sizes.end()));
}

// Writes the flags for pending conjugation and negation.
void Writer::put_metadata(const at::Tensor& tensor) {
  FileValue::Dict metadata;
  if (tensor.is_conj()) metadata.items.emplace_back("conj", true);
  if (tensor.is_neg()) metadata.items.emplace_back("neg", true);
  if (!metadata.items.empty()) put_dict(metadata);
}

}  // namespace
}  // namespace attentive::pickle

namespace attentive {
namespace {

[[noreturn]] void fail_to_save(const std::filesystem::path& path, const char* reason) {
  throw TorchFileError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                       fmt::format("save_torch: {}: {}", path.string(), reason));
}

// Runs the reader's checks, so that nothing is written that it would refuse: duplicate or unhashable keys,
// text that is not UTF-8.
void check_pickle(const std::string& pickle) {
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  const TorchFileLimits limits{
      .max_pickle_bytes = kMost, .max_depth = 1000, .max_tensors = kMost, .max_values = kMost};
  const ByteSource source(pickle.data(), pickle.size());
  pickle::PickleInput input(source, 0, pickle.size(), kMost);
  (void)input.load_all();
  MemoryBudget budget(std::numeric_limits<uint64_t>::max());
  pickle::Graph graph(budget);
  const auto root =
      pickle::Unpickler(input, graph, {.storage_items = 5, .max_tensors = limits.max_tensors}).load();
  check_values(graph, input, root, limits);
}

// A storage's bytes, copied to the CPU if necessary.
at::Tensor bytes_of(const c10::Storage& storage) {
  const auto options = at::TensorOptions().dtype(at::kByte).device(storage.device());
  const auto size = static_cast<int64_t>(storage.nbytes());
  return at::empty({0}, options).set_(storage, 0, {size}, {1}).to(at::kCPU);
}

void write(const std::filesystem::path& path, const FileValue& value) {
  pickle::Writer writer;
  const auto pickle = writer.write(value);
  check_pickle(pickle);
  AtomicFile file(path);
  ZipWriter archive(file, "archive");
  archive.write("data.pkl", pickle);
  archive.write(".format_version", "1");
  archive.write(".storage_alignment", "64");
  archive.write("byteorder", "little");
  for (size_t key = 0; key < writer.storages().size(); ++key) {
    const auto bytes = bytes_of(writer.storages()[key]);
    archive.write(fmt::format("data/{}", key), bytes.const_data_ptr(), bytes.nbytes());
  }
  archive.write("version", "3\n");
  archive.write(".data/serialization_id", archive.identity());
  archive.finish();
  file.commit();
}

}  // namespace

void save_torch(const std::filesystem::path& path, const FileValue& value) {
  try {
    write(path, value);
  } catch (const Refusal& refusal) {
    fail_to_save(path, refusal.what());
  } catch (const std::system_error& error) {
    fail_to_save(path, error.what());
  }
}

void save_torch(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& state) {
  FileValue::Dict dict;
  dict.ordered = true;
  for (const auto& [key, tensor] : state) {
    dict.items.emplace_back(key, tensor.defined() ? tensor.detach() : tensor);
  }
  save_torch(path, FileValue(std::move(dict)));
}

}  // namespace attentive
