// For arbitrary bytes, parse_torch returns a value or throws TorchFileError; tensors lie within their
// storages and storages within the file; and an accepted value can be saved and read again.
//
// The first byte selects how the rest is used. 0: as the file. 1: as the pickle of a zip archive with the
// right checksum and two storages. 2: as the object of a file in the format before PyTorch 1.6, with the same
// two storages.
//
//   build/fuzz/tests/torch_file_fuzz -max_total_time=600 -dict=tests/fuzz/torch_file.dict new
//   build/fuzz/tests/corpora/torch_file_fuzz

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <unistd.h>

#include <attentive/files/torch_file.h>

#include "files/file_value_truth.h"
#include "files/hostile_torch_file.h"

using attentive::FileValue;
using attentive::TorchFileError;

namespace {

[[noreturn]] void report(const char* what) {
  std::fputs(what, stderr);
  std::abort();
}

std::string second_storage() {
  return std::string("\0\1\0\1", 4);
}

std::string in_zip(const std::string& pickle) {
  auto file = attentive::test::archive_of(pickle);
  file.entries.push_back({.name = "archive/data/1", .data = second_storage()});
  return file.bytes();
}

std::string in_old_format(const std::string& pickle) {
  using attentive::test::Pickle;
  auto file = attentive::test::legacy_of(pickle);
  file.keys = Pickle().raw("](").text("0").text("1").raw("e").stop();
  file.storages.push_back({.count = 4, .bytes = second_storage()});
  return file.bytes();
}

std::string file_of(const uint8_t* data, size_t size) {
  if (size == 0) return {};
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  return data[0] == 1 ? in_zip(rest) : data[0] == 2 ? in_old_format(rest) : rest;
}

// Reads every byte of every storage, and every element of every tensor, once.
class Walk {
 public:
  void value(const FileValue& value) {
    if (value.is<at::Tensor>()) {
      tensor(value.as<at::Tensor>());
    } else if (value.is<FileValue::Parameter>()) {
      tensor(value.as<FileValue::Parameter>().data);
    } else if (value.is<FileValue::List>()) {
      for (const auto& item : value.as<FileValue::List>().items) this->value(item);
    } else if (value.is<FileValue::Tuple>()) {
      for (const auto& item : value.as<FileValue::Tuple>().items) this->value(item);
    } else if (value.is<FileValue::Set>()) {
      for (const auto& item : value.as<FileValue::Set>().items) this->value(item);
    } else if (value.is<FileValue::Dict>()) {
      for (const auto& [key, item] : value.as<FileValue::Dict>().items) this->value(key), this->value(item);
    }
  }
  size_t storage_bytes() const { return storage_bytes_; }
  int64_t elements() const { return elements_; }

 private:
  void tensor(const at::Tensor& tensor) {
    const auto* bytes = static_cast<const uint8_t*>(tensor.storage().data());
    if (seen_.insert(tensor.storage().unsafeGetStorageImpl()).second) {
      storage_bytes_ += tensor.storage().nbytes();
      for (size_t i = 0; i < tensor.storage().nbytes(); ++i) sum_ = sum_ + bytes[i];
    }
    if (tensor.numel() == 0) return;
    int64_t last = tensor.storage_offset();
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      if (tensor.stride(d) < 0 || tensor.size(d) < 1) report("a negative size or stride\n");
      last += (tensor.size(d) - 1) * tensor.stride(d);
    }
    if (tensor.storage_offset() < 0 ||
        (static_cast<size_t>(last) + 1) * tensor.itemsize() > tensor.storage().nbytes()) {
      report("a tensor leaves its storage\n");
    }
    elements_ += std::min<int64_t>(tensor.numel(), 1 << 30);
  }

  std::set<const void*> seen_;
  size_t storage_bytes_ = 0;
  int64_t elements_ = 0;
  volatile uint64_t sum_ = 0;
};

// A file is expensive, so only some inputs are saved.
bool save_this_one(const std::string& file) {
  unsigned sum = 0;
  for (const char byte : file) sum = sum * 31 + static_cast<unsigned char>(byte);
  return sum % 16 == 0;
}

void save_and_map(const FileValue& value, const std::string& file) {
  static const auto path =
      std::filesystem::temp_directory_path() / ("torch_file_fuzz-" + std::to_string(::getpid()));
  const auto truth = attentive::test::truth_of(value);
  std::ofstream(path, std::ios::binary) << file;
  if (attentive::test::truth_of(attentive::load_torch(path, {.map = true})) != truth)
    report("mapped, it reads otherwise\n");
  try {
    attentive::save_torch(path, value);
  } catch (const TorchFileError& error) {
    // Such an integer can be read here, but Python's torch.load could not read it again, so it cannot be
    // saved.
    if (std::string(error.what()).find("an integer of at most 255 bytes") == std::string::npos) throw;
    return;
  }
  if (attentive::test::truth_of(attentive::load_torch(path)) != truth) report("changed by a save\n");
  ::unlink(path.c_str());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = file_of(data, size);
  FileValue value;
  try {
    value = attentive::parse_torch(file.data(), file.size());
  } catch (const TorchFileError&) {
    return 0;
  }
  Walk walk;
  walk.value(value);
  if (walk.storage_bytes() > file.size()) report("storages hold more bytes than the file\n");
  if (walk.elements() < (1 << 16) && save_this_one(file)) save_and_map(value, file);
  return 0;
}
