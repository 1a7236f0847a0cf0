#include <limits>
#include <string>
#include <system_error>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <attentive/files/torch_file.h>

#include "base/files.h"
#include "base/refusal.h"
#include "files/pickle/checks.h"
#include "files/pickle/input.h"
#include "files/pickle/pickle.h"
#include "files/pickle/writer.h"
#include "files/zip/zip_writer.h"

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
