#include "distributed/sigpipe_block.h"

#include <ctime>
#include <pthread.h>
#include <unistd.h>

namespace attentive::distributed {
namespace {

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
  bool sent = false;  // by another process, and not by a write of this thread
  while (::sigtimedwait(&signals, &cause, &now) == SIGPIPE) sent |= cause.si_pid != ::getpid();
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  if (sent) ::kill(::getpid(), SIGPIPE);
}

}  // namespace attentive::distributed
