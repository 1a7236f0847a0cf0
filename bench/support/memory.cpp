#include "support/memory.h"

#include <fstream>
#include <malloc.h>
#include <string>

namespace bench {
namespace {

double status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return 1024.0 * std::stod(line.substr(key.size()));
  }
  return -1;
}

}  // namespace

double peak_growth(const std::function<void()>& work) {
  malloc_trim(0);
  // Writing 5 resets the peak, VmHWM, to VmRSS.
  if (std::ofstream reset("/proc/self/clear_refs"); !(reset << "5" << std::flush)) return -1;
  const double before = status_bytes("VmRSS:");
  work();
  const double highest = status_bytes("VmHWM:");
  return before < 0 || highest < 0 ? -1 : highest - before;
}

}  // namespace bench
