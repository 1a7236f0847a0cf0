#include "support/machine.h"

#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <sys/utsname.h>
#include <thread>

#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <attentive/version.h>

namespace bench {

Isa isa_in_use() {
  Isa isa;
  isa.capability = at::get_cpu_capability();
  isa.avx512 = isa.capability.starts_with("AVX512");
  isa.avx2 = isa.avx512 || isa.capability == "AVX2";
  const char* limit = std::getenv("ATEN_CPU_CAPABILITY");
  isa.newest = isa.avx512 && !(limit && std::string_view(limit) == "avx512");
  return isa;
}

namespace {

/// The first entry with this name; empty if there is none.
std::string cpuinfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (line.starts_with(key) && colon != std::string::npos && colon + 2 <= line.size())
      return line.substr(colon + 2);
  }
  return "";
}

std::string processor() {
  if (const auto name = cpuinfo("model name"); !name.empty()) return name;
  utsname system{};
  const std::string architecture = uname(&system) == 0 ? system.machine : "unknown architecture";
  const auto implementer = cpuinfo("CPU implementer"), part = cpuinfo("CPU part");  // ARM gives numbers only
  if (implementer.empty()) return architecture;
  return fmt::format("{}, CPU implementer {}, part {}", architecture, implementer, part);
}

std::string instruction_sets(const Isa& isa) {
  struct Flag {
    const char* name;
    bool in_use;
  };
  const std::array<Flag, 11> flags = {{{"avx2", isa.avx2},
                                       {"fma", isa.avx2},
                                       {"avx512f", isa.avx512},
                                       {"avx512_bf16", isa.newest},
                                       {"avx512_fp16", isa.newest},
                                       {"amx_bf16", isa.newest},
                                       {"asimd", true},
                                       {"bf16", true},
                                       {"i8mm", true},
                                       {"sve", true},
                                       {"sve2", true}}};
  const auto x86 = cpuinfo("flags");
  std::istringstream words(x86.empty() ? cpuinfo("Features") : x86);
  std::string found;
  for (std::string word; words >> word;) {
    for (const auto& flag : flags) {
      if (flag.in_use && word == flag.name) found += (found.empty() ? "" : " ") + word;
    }
  }
  return found.empty() ? "no vectors beyond the architecture's own" : found;
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang++ {}.{}", __clang_major__, __clang_minor__);
#else
  return fmt::format("g++ {}.{}", __GNUC__, __GNUC_MINOR__);
#endif
}

}  // namespace

Machine describe_machine(std::string device) {
  const auto isa = isa_in_use();
  return {processor(),       instruction_sets(isa),
          isa.capability,    static_cast<int>(std::thread::hardware_concurrency()),
          TORCH_VERSION,     compiler(),
          ATTENTIVE_VERSION, std::move(device)};
}

std::string to_string(const Machine& machine, int threads) {
  return fmt::format("{}{} ({}; LibTorch uses {}), {} cores, {} threads; LibTorch {}, attentive {}, {}",
                     machine.device.empty() ? "" : machine.device + " beside ", machine.cpu, machine.isa,
                     machine.capability, machine.cores, threads, machine.libtorch, machine.package,
                     machine.compiler);
}

void finish(at::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

}  // namespace bench
