#include "distributed/process_effects.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <mutex>
#include <pthread.h>
#include <unistd.h>

namespace attentive::distributed {
namespace {

std::atomic<bool> exit_at_once_allowed{true};

sigset_t sigpipe() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  return signals;
}

}  // namespace

SigpipeBlock::SigpipeBlock() {
  const auto signals = sigpipe();
  ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
}

SigpipeBlock::~SigpipeBlock() {
  if (sigismember(&before_, SIGPIPE) == 1) return;
  const auto signals = sigpipe();
  const timespec now{};
  siginfo_t cause{};
  bool sent = false;  // sent by another process, not raised by a write of this thread
  while (::sigtimedwait(&signals, &cause, &now) == SIGPIPE) sent |= cause.si_pid != ::getpid();
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  if (sent) ::kill(::getpid(), SIGPIPE);
}

void allow_exit_at_once(bool allowed) {
  exit_at_once_allowed = allowed;
}

void exit_at_once() {
  if (!exit_at_once_allowed) return;
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
