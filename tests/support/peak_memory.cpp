#include <fstream>
#include <malloc.h>
#include <stdexcept>
#include <sys/resource.h>

#include "support/memory_meter.h"

namespace attentive::test {
namespace {

// Returns the bytes of a line such as "VmHWM:     1234 kB" of /proc/self/status.
size_t status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  }
  throw std::runtime_error("no " + key + " in /proc/self/status");
}

bool forget_peak() {
  std::ofstream out("/proc/self/clear_refs");
  out << "5" << std::flush;
  return out.good();
}

}  // namespace

std::optional<std::string> why_no_peak_memory() {
#if defined(__SANITIZE_ADDRESS__)
  return "the address sanitizer keeps freed memory";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  return "the address sanitizer keeps freed memory";
#endif
#endif
  if (!forget_peak()) return "/proc/self/clear_refs cannot be written";
  return std::nullopt;
}

size_t peak_memory(const std::function<void()>& call) {
  ::malloc_trim(0);  // freed memory that the heap keeps could serve the call unnoticed
  if (!forget_peak()) throw std::runtime_error("/proc/self/clear_refs cannot be written");
  const auto before = status_bytes("VmRSS");
  call();
  const auto peak = status_bytes("VmHWM");
  return peak > before ? peak - before : 0;
}

void with_address_space(size_t more, const std::function<void()>& call) {
  rlimit before{};
  if (::getrlimit(RLIMIT_AS, &before) != 0) throw std::runtime_error("getrlimit failed");
  rlimit limited = before;
  limited.rlim_cur = status_bytes("VmSize") + more;
  if (::setrlimit(RLIMIT_AS, &limited) != 0) throw std::runtime_error("setrlimit failed");
  try {
    call();
  } catch (...) {
    ::setrlimit(RLIMIT_AS, &before);
    throw;
  }
  ::setrlimit(RLIMIT_AS, &before);
}

}  // namespace attentive::test
