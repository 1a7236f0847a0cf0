#include "stop_signals.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <unistd.h>

namespace {

std::atomic<bool> requested{false};
std::string announcement;  // complete before the handler is installed

extern "C" void on_signal(int signal) {
  requested = true;
  if (signal != SIGINT && signal != SIGTERM) return;  // nobody can read the message or press Ctrl-C again
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  const int before = errno;
  (void)!::write(STDERR_FILENO, announcement.data(), announcement.size());
  errno = before;
}

}  // namespace

void install_stop_signals(const std::string& message) {
  // On a terminal, replaces the progress line, to which the terminal has added ^C.
  if (!message.empty()) announcement = (::isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "") + message + '\n';
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    // A signal that was ignored, for instance by nohup, stays ignored.
    if (std::signal(signal, on_signal) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

bool stop_requested() {
  return requested;
}
