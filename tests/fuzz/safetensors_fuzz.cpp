// For arbitrary bytes, parse_safetensors returns a file or throws SafetensorsError, and a file that it
// accepts can be saved and read again.
//
//   build/fuzz/tests/safetensors_fuzz -max_total_time=600 -dict=tests/fuzz/safetensors.dict new
//   build/fuzz/tests/corpora/safetensors_fuzz

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <unistd.h>

#include <attentive/files/safetensors.h>

namespace {

[[noreturn]] void report(const char* what) {
  std::fputs(what, stderr);
  std::abort();
}

bool equal(const at::Tensor& left, const at::Tensor& right) {
  return left.scalar_type() == right.scalar_type() && left.sizes() == right.sizes() &&
         (left.nbytes() == 0 ||
          std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0);
}

// Saving is expensive, so only some inputs are saved.
bool save_this_one(const uint8_t* data, size_t size) {
  unsigned sum = 0;
  for (size_t i = 0; i < size; ++i) sum = sum * 31 + data[i];
  return sum % 64 == 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  attentive::SafetensorsFile file;
  try {
    file = attentive::parse_safetensors(data, size);
  } catch (const attentive::SafetensorsError&) {
    return 0;
  }
  size_t bytes = 0;
  for (const auto& [name, tensor] : file.tensors) bytes += tensor.nbytes();
  if (bytes > size) report("tensors hold more bytes than the file\n");
  if (!save_this_one(data, size)) return 0;

  static const auto path =
      std::filesystem::temp_directory_path() / ("safetensors_fuzz-" + std::to_string(::getpid()));
  attentive::save_safetensors(path, file.tensors, file.metadata);
  const auto again = attentive::load_safetensors(path);
  ::unlink(path.c_str());
  if (again.metadata != file.metadata) report("metadata changed by a save\n");
  if (again.tensors.size() != file.tensors.size()) report("tensors lost by a save\n");
  for (const auto& [name, tensor] : file.tensors) {
    if (!equal(tensor, again.tensors.at(name))) report("a tensor changed by a save\n");
  }
  return 0;
}
