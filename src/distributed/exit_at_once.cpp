#include "distributed/exit_at_once.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>

namespace attentive::distributed {

void exit_at_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    ::on_exit(
        [](int status, void*) {
          std::cout.flush();
          std::fflush(nullptr);
          std::_Exit(status);
        },
        nullptr);
  });
}

}  // namespace attentive::distributed
