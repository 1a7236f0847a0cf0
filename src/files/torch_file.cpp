#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <string>

#include <fmt/format.h>

#include <attentive/files/torch_file.h>

#include "base/refusal.h"
#include "files/byte_source.h"
#include "files/torch/torch_tensors.h"

namespace attentive {
namespace {

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
