// Linked into this project's programs that use LLVM's OpenMP runtime. That runtime keeps the file
// /dev/shm/__KMP_REGISTERED_LIB_<process>_<user> from its first use to the end of the process. A killed
// process leaves the file behind, and it is empty if the process was killed between its creation and the
// first write; the next process with that number would map it and end by SIGBUS. A file with contents is left
// alone, because the runtime itself notices that its writer has ended.

#include <filesystem>
#include <pthread.h>
#include <string>
#include <system_error>
#include <unistd.h>

namespace {

void remove_empty_registration() {
  const auto file =
      "/dev/shm/__KMP_REGISTERED_LIB_" + std::to_string(::getpid()) + "_" + std::to_string(::getuid());
  std::error_code none;  // the usual case: there is no such file
  if (std::filesystem::file_size(file, none) == 0) std::filesystem::remove(file, none);
}

// Made before main.
struct RemovedHereAndInCopies {
  RemovedHereAndInCopies() {
    remove_empty_registration();
    // A copy made by fork registers under its own number.
    ::pthread_atfork(nullptr, nullptr, remove_empty_registration);
  }
};
const RemovedHereAndInCopies removed;

}  // namespace
