#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <vector>

#include "base/refusal.h"
#include "files/pickle/checks.h"
#include "files/pickle/graph.h"
#include "files/pickle/input.h"
#include "files/pickle/pickle.h"
#include "files/torch/torch_tensors.h"
#include "files/zip/crc32.h"
#include "files/zip/zip_archive.h"

namespace attentive {
namespace {

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
    numbers[r] = tensors.add(key, record.offset, record.size, record.crc);
  }
  for (size_t i = 0; i < record_of.size(); ++i) tensors.assign(i, numbers[record_of[i]]);
}

}  // namespace

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

}  // namespace attentive
