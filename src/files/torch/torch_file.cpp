#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <fmt/format.h>

#include <attentive/files/torch_file.h>

#include "base/refusal.h"
#include "core/memory.h"
#include "files/dtypes.h"
#include "files/mapped_file.h"
#include "files/torch/pickle.h"
#include "files/torch/zip.h"

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

// Loads the storages of a file and the tensors that a pickle describes over them. Works in stages: every
// storage of the file is added, and every mention is assigned to one; then every tensor is checked against
// the true size of its storage; only then is memory allocated and are bytes read. Every member throws
// Refusal.
class TorchTensors {
 public:
  TorchTensors(const ByteSource& source, const pickle::Graph& graph, const TorchFileOptions& options);

  // Adds a storage of `size` bytes at `offset` of the file. `crc` is the CRC-32 of the bytes, if the file
  // has it.
  uint32_t add(std::string_view name, uint64_t offset, uint64_t size, std::optional<uint32_t> crc);
  // Assigns the graph's mention with this number to a storage.
  void assign(size_t mention, uint32_t storage);
  // Reads the storages, in the order in which they were added, and returns the tensors in the order of the
  // graph.
  std::vector<at::Tensor> load();

 private:
  struct Stored {
    std::string_view name;
    uint64_t offset = 0;
    uint64_t size = 0;
    std::optional<uint32_t> crc;
    std::optional<at::ScalarType> dtype = std::nullopt;  // as given by its mentions
    uint64_t alignment = 1;
    bool holds_bools = false;
    c10::Storage storage = {};
  };

  struct ElementRange {
    int64_t begin = 0;
    int64_t count = 0;
  };

  ElementRange range_of(const pickle::TensorSpec& spec) const;
  void check(const pickle::TensorSpec& spec);
  void check_sum(const Stored& stored, uint32_t sum) const;
  std::vector<int64_t> numbers(pickle::Ref tuple) const;
  void read(Stored& stored);
  c10::DataPtr read_owned(const Stored& stored) const;
  c10::DataPtr read_mapped(const Stored& stored) const;
  at::Tensor make(const pickle::TensorSpec& spec) const;

  const ByteSource& source_;
  const pickle::Graph& graph_;
  const TorchFileOptions& options_;
  std::shared_ptr<MappedFile> mapping_;
  std::vector<Stored> stored_;
  std::vector<uint32_t> storage_of_;  // by mention
  uint64_t bytes_ = 0;
};

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
TorchTensors::ElementRange TorchTensors::range_of(const pickle::TensorSpec& spec) const {
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
  const auto range = range_of(spec);
  const auto last = is_empty(sizes) ? 0 : reach(sizes, strides);
  int64_t end = 0;
  if (!last || !dense_bytes(sizes, item) || __builtin_add_overflow(*last, spec.offset, &end)) {
    refuse("the sizes, strides and offset of a tensor in storage {} overflow", quoted_name(stored.name));
  }
  if (!is_empty(sizes) && end >= range.count) {
    refuse("a tensor reaches element {} of storage {}, which has {}", end, quoted_name(stored.name),
           range.count);
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
  advise_huge_pages_at(data.get(), stored.size);
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
  const auto range = range_of(spec);
  // An empty tensor may have any offset; one beyond the storage must not become an address.
  const auto offset = is_empty(sizes) && spec.offset > range.count ? 0 : range.begin + spec.offset;
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

constexpr std::string_view kStorages = "data/";

bool is_storage(const ZipRecord& record) {
  return record.name.substr(0, kStorages.size()) == kStorages;
}

// A short text record; nothing if there is none.
std::optional<std::string> read_record_text(const ZipArchive& archive, std::string_view name) {
  constexpr uint64_t kLongest = 64;
  const auto* record = archive.find(name);
  if (record == nullptr) return std::nullopt;
  if (record->size > kLongest) refuse("record {} has {} bytes", quoted_name(name), record->size);
  std::string text(record->size, '\0');
  archive.read(*record, text.data());
  return text;
}

void check_version(const ZipArchive& archive) {
  constexpr int kOldest = 1, kNewest = 10;  // the versions that PyTorch 2.11 reads
  const auto text = read_record_text(archive, "version");
  if (!text) refuse("a zip archive without a record \"version\": not written by torch.save");
  int version = 0;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), version);
  const std::string_view rest(parsed.ptr, static_cast<size_t>(text->data() + text->size() - parsed.ptr));
  if (parsed.ec != std::errc() || (!rest.empty() && rest != "\n") || version < kOldest || version > kNewest) {
    refuse("expected version {} to {}, got {}", kOldest, kNewest, quoted_name(*text));
  }
}

void check_kind(const ZipArchive& archive) {
  for (const auto& record : archive.records()) {
    if (record.name == "constants.pkl" || record.name.substr(0, 5) == "code/") {
      refuse("a TorchScript archive, of torch.jit.save, is not read here");
    }
  }
  check_version(archive);
  const auto order = read_record_text(archive, "byteorder");
  if (order && *order != "little") {
    refuse("expected byteorder \"little\", got {}", quoted_name(*order));
  }
}

// Checks records that are not needed, too: damage to one of them is damage to the file.
void check_sums(const ByteSource& source, const ZipArchive& archive) {
  std::vector<char> buffer(size_t{64} << 10);
  for (const auto& record : archive.records()) {
    if (is_storage(record) || record.name == "data.pkl") continue;
    uint32_t sum = 0;
    for (uint64_t done = 0; done < record.size;) {
      const auto now = std::min<uint64_t>(buffer.size(), record.size - done);
      source.read(record.offset + done, buffer.data(), now);
      sum = crc32(sum, buffer.data(), now);
      done += now;
    }
    archive.check_sum(record, sum);
  }
}

// Adds the archive's storages and assigns every mention to one of them.
void add_zip_storages(const ZipArchive& archive, const pickle::Graph& graph, const pickle::PickleInput& input,
                      TorchTensors& tensors) {
  std::vector<bool> mentioned(archive.records().size());
  std::vector<uint32_t> numbers(archive.records().size());  // the number of each record's storage
  std::vector<uint32_t> record_of(graph.storages.size());
  for (size_t i = 0; i < graph.storages.size(); ++i) {
    const auto& node = graph[graph.storages[i].key];
    const auto key = input.text(node.offset, node.size);
    if (key.find_first_of("/\\") != std::string_view::npos) {
      refuse("the storage key {} holds a separator", quoted_name(key));
    }
    const auto* record = archive.find(std::string(kStorages).append(key));
    if (record == nullptr) refuse("storage {} is not in the archive", quoted_name(key));
    record_of[i] = static_cast<uint32_t>(record - archive.records().data());
    mentioned[record_of[i]] = true;
  }
  for (size_t r = 0; r < archive.records().size(); ++r) {
    const auto& record = archive.records()[r];
    if (!is_storage(record)) continue;
    const auto key = record.name.substr(kStorages.size());
    if (!mentioned[r]) refuse("its description does not mention storage {}", quoted_name(key));
    const auto crc = archive.has_sums() ? std::optional(record.crc) : std::nullopt;
    numbers[r] = tensors.add(key, record.offset, record.size, crc);
  }
  for (size_t i = 0; i < record_of.size(); ++i) tensors.assign(i, numbers[record_of[i]]);
}

// Reads a zip archive: <root>/data.pkl, a storage in each <root>/data/<key>, <root>/version,
// <root>/byteorder, and records that are ignored.
FileValue read_torch_zip(const ByteSource& source, const TorchFileOptions& options) {
  const auto& limits = options.limits;
  const ZipArchive archive(source, limits.max_pickle_bytes);
  check_kind(archive);
  const auto* description = archive.find("data.pkl");
  if (description == nullptr) {
    refuse("a zip archive without a record \"data.pkl\": not written by torch.save");
  }
  if (options.checksums) check_sums(source, archive);

  pickle::PickleInput input(source, description->offset, description->offset + description->size,
                            limits.max_pickle_bytes);
  const auto sum = input.load_all();
  if (options.checksums) archive.check_sum(*description, sum);
  MemoryBudget budget(limits.max_pickle_bytes);
  pickle::Graph graph(budget);
  const auto root =
      pickle::Unpickler(input, graph, {.storage_items = 5, .max_tensors = limits.max_tensors}).load();
  if (input.remaining() > 0) refuse("{} bytes after the end of its pickle", input.remaining());
  check_values(graph, input, root, limits);

  TorchTensors tensors(source, graph, options);
  add_zip_storages(archive, graph, input, tensors);
  return build_value(graph, input, root, tensors.load());
}

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

// Reads the format before PyTorch 1.6: five pickles (a magic number, a protocol version, facts about the
// machine, the value, and the keys of its storages), then for each key the number of elements and the
// elements.
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

[[noreturn]] void fail_torch_file(const std::string& caller, std::string_view reason) {
  throw TorchFileError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                       fmt::format("{}: {}", caller, reason));
}

void check(const char* caller, const TorchFileLimits& limits) {
  // The description's counters are 32 bits wide.
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  const auto expect = [&](const char* name, int64_t value, int64_t most) {
    TORCH_CHECK_VALUE(value >= 1 && value <= most, caller, ": expected limits.", name, " from 1 to ", most,
                      ", got ", value);
  };
  expect("max_pickle_bytes", static_cast<int64_t>(limits.max_pickle_bytes), kMost);
  expect("max_depth", limits.max_depth, 1000);
  expect("max_tensors", limits.max_tensors, kMost);
  expect("max_values", limits.max_values, kMost);
}

// Recognises a tar archive, as PyTorch 0.1 wrote, by its magic word.
bool is_tar(const ByteSource& source) {
  constexpr uint64_t kPlace = 257;
  std::array<char, 5> word{};
  if (source.size() < kPlace + word.size()) return false;
  source.read(kPlace, word.data(), word.size());
  return std::string_view(word.data(), word.size()) == "ustar";
}

FileValue read(const ByteSource& source, const TorchFileOptions& options) {
  if (source.size() == 0) refuse("it is empty");
  std::array<char, 2> start{};
  source.read(0, start.data(), std::min<uint64_t>(start.size(), source.size()));
  if (start[0] == 'P' && start[1] == 'K') return read_torch_zip(source, options);
  if (start[0] == '\x80') return read_torch_pickles(source, options);
  if (is_tar(source)) refuse("the tar format of PyTorch 0.1 is not read here");
  refuse("neither a zip archive nor a pickle: not written by torch.save");
}

template <class Read>
FileValue reporting(const std::string& caller, Read run) {
  try {
    return run();
  } catch (const Refusal& refusal) {
    fail_torch_file(caller, refusal.what());
  } catch (const std::bad_alloc&) {
    fail_torch_file(caller, "there is no memory for its description");
  }
}

}  // namespace

FileValue load_torch(const std::filesystem::path& path, const TorchFileOptions& options) {
  check("load_torch", options.limits);
  return reporting(fmt::format("load_torch: {}", path.string()),
                   [&] { return read(ByteSource(path), options); });
}

FileValue parse_torch(const void* data, size_t size, const TorchFileOptions& options) {
  check("parse_torch", options.limits);
  TORCH_CHECK_VALUE(!options.map, "parse_torch: expected map = false: there is no file to be mapped");
  return reporting("parse_torch", [&] { return read(ByteSource(data, size), options); });
}

}  // namespace attentive
