#include "support/machine.h"

#include <array>
#include <fstream>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <torch/version.h>

#include <attentive/version.h>

namespace bench {
namespace {

std::string cpuinfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::string instruction_sets() {
  constexpr std::array<const char*, 6> wanted = {"avx2",        "fma",         "avx512f",
                                                 "avx512_bf16", "avx512_fp16", "amx_bf16"};
  std::istringstream flags(cpuinfo("flags"));
  std::string found;
  for (std::string flag; flags >> flag;) {
    for (const char* name : wanted) {
      if (flag == name) found += (found.empty() ? "" : " ") + flag;
    }
  }
  return found;
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang++ {}.{}", __clang_major__, __clang_minor__);
#else
  return fmt::format("g++ {}.{}", __GNUC__, __GNUC_MINOR__);
#endif
}

}  // namespace

Machine describe_machine() {
  return {cpuinfo("model name"), instruction_sets(), static_cast<int>(std::thread::hardware_concurrency()),
          TORCH_VERSION,         compiler(),         ATTENTIVE_VERSION};
}

}  // namespace bench
