#include "support/openmp_runtimes.h"

#include <cstdint>
#include <dlfcn.h>
#include <filesystem>
#include <functional>
#include <link.h>

namespace attentive::test {
namespace {

using Visit = std::function<void(const dl_phdr_info&, const std::string& name)>;

// Visits the program, with an empty name, and then every loaded library with the name of its file.
void for_each_library(const Visit& visit) {
  const auto call = [](dl_phdr_info* info, size_t, void* data) {
    const auto name = std::filesystem::path(info->dlpi_name).filename().string();
    (*static_cast<const Visit*>(data))(*info, name);
    return 0;
  };
  dl_iterate_phdr(call, const_cast<Visit*>(&visit));
}

// The tables of a library that the dynamic loader reads.
struct DynamicPart {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const uint32_t* hash = nullptr;
};

DynamicPart dynamic_part(const dl_phdr_info& info) {
  DynamicPart part;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      const auto address = entry->d_un.d_ptr;  // glibc has already added the library's load address
      if (entry->d_tag == DT_SYMTAB) part.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
      if (entry->d_tag == DT_STRTAB) part.names = reinterpret_cast<const char*>(address);
      if (entry->d_tag == DT_GNU_HASH) part.hash = reinterpret_cast<const uint32_t*>(address);
    }
  }
  return part;
}

std::string file_of(const void* address) {
  Dl_info found = {};
  return dladdr(address, &found) != 0 ? std::filesystem::canonical(found.dli_fname).string() : "";
}

bool is_openmp(const std::string& function) {
  return function.starts_with("omp_") || function.starts_with("GOMP_") || function.starts_with("__kmpc_");
}

}  // namespace

std::set<std::string> loaded_openmp_runtimes() {
  std::set<std::string> files;
  for_each_library([&](const dl_phdr_info& info, const std::string& name) {
    if (name.starts_with("libgomp") || name.starts_with("libomp") || name.starts_with("libiomp")) {
      files.insert(std::filesystem::canonical(info.dlpi_name).string());
    }
  });
  return files;
}

std::map<std::string, std::string> openmp_calls_of(const std::string& library) {
  std::map<std::string, std::string> answers;
  bool found = false;
  for_each_library([&](const dl_phdr_info& info, const std::string& name) {
    if (found || !name.starts_with(library)) return;
    found = true;
    const auto part = dynamic_part(info);
    if (!part.symbols || !part.names || !part.hash) return;
    // Undefined symbols come first; entry 1 of the hash table is the index of the first defined one.
    for (uint32_t i = 1; i < part.hash[1]; ++i) {
      const std::string function = part.names + part.symbols[i].st_name;
      if (is_openmp(function)) answers[function] = file_of(dlsym(RTLD_DEFAULT, function.c_str()));
    }
  });
  return answers;
}

}  // namespace attentive::test
