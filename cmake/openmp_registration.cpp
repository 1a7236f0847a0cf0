// Linked into the programs of this project that LLVM's OpenMP runtime serves. That runtime keeps the file
// /dev/shm/__KMP_REGISTERED_LIB_<process>_<user> from its first use to the end of the process. A process that is killed leaves
// it, and one that is killed between the file's creation and its first byte leaves it empty: the next process of that number
// would map it and end by SIGBUS. A file with contents is left alone: the runtime sees by itself that its writer is gone.

#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

bool remove_empty_registration() {
  const auto name = "/__KMP_REGISTERED_LIB_" + std::to_string(::getpid()) + "_" + std::to_string(::getuid());
  const int file = ::shm_open(name.c_str(), O_RDONLY, 0);
  if (file < 0) return false;  // the usual case
  struct stat status {};
  const bool empty = ::fstat(file, &status) == 0 && status.st_size == 0;
  ::close(file);
  return empty && ::shm_unlink(name.c_str()) == 0;
}

[[maybe_unused]] const bool removed = remove_empty_registration();  // before main

}  // namespace
