#include "distributed/failures.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <mutex>
#include <pthread.h>
#include <unistd.h>

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <attentive/distributed/group.h>

#include "distributed/connection.h"

namespace attentive::distributed {
namespace {

std::atomic<bool> exit_at_once_allowed{true};

sigset_t sigpipe() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  return signals;
}

// Writes the file from which torchrun shows why a process has failed.
void write_error_file(const std::string& message) {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const nlohmann::json content{{"message", message},
                               {"timestamp", std::chrono::duration_cast<std::chrono::seconds>(now).count()}};
  std::ofstream(path) << content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
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

std::string first_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
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

void attentive::report_failure(const std::exception& error) noexcept {
  try {
    const auto message = distributed::first_line(error);
    distributed::write_error_file(message);
    if (const auto connection = distributed::current_connection().lock()) connection->abandon(message);
  } catch (const std::exception&) {  // the program goes on to print the failure itself
  }
}
