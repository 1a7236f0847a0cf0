// Linked into the programs of this project that LLVM's OpenMP runtime serves. That runtime keeps the file
// /dev/shm/__KMP_REGISTERED_LIB_<process>_<user> from its first use to the end of the process. A process that is killed leaves
// it, and one that is killed between the file's creation and its first byte leaves it empty: the next process of that number
// would map it and end by SIGBUS. A file with contents is left alone: the runtime sees by itself that its writer is gone.

#include <filesystem>
#include <string>
#include <system_error>
#include <unistd.h>

namespace {

bool remove_empty_registration() {
  const auto file =
      "/dev/shm/__KMP_REGISTERED_LIB_" + std::to_string(::getpid()) + "_" + std::to_string(::getuid());
  std::error_code none;  // the usual case: there is no such file
  return std::filesystem::file_size(file, none) == 0 && std::filesystem::remove(file, none);
}

[[maybe_unused]] const bool removed = remove_empty_registration();  // before main

}  // namespace
