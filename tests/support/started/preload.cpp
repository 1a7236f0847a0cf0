// Preloaded into a program, keeps it waiting in front of main(), when LibTorch has been loaded and its static
// objects have been made, which takes a quarter of a second. Every request of a client runs main() in a copy
// of this process.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <vector>

#include "started/request.h"

using namespace attentive::test::started;

namespace {

using Main = int (*)(int, char**, char**);
Main program_main = nullptr;

struct CommandLine {
  Request request{};
  int folder = -1;
  std::vector<int> streams;
  std::string strings;
  std::vector<char*> arguments, environment;  // each ends with a null pointer
};

bool receive(int from, CommandLine& line) {
  iovec part{.iov_base = &line.request, .iov_len = sizeof line.request};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (::recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof line.request) return false;
  const auto* header = CMSG_FIRSTHDR(&message);
  if (!header) return false;
  std::vector<int> files((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  std::memcpy(files.data(), CMSG_DATA(header), files.size() * sizeof(int));
  line.folder = files.front();
  line.streams.assign(files.begin() + 1, files.end());

  line.strings.resize(line.request.bytes);
  if (!read_all(from, line.strings.data(), line.strings.size())) return false;
  for (size_t at = 0; at < line.strings.size(); at += std::strlen(&line.strings[at]) + 1)
    (line.arguments.size() < line.request.arguments ? line.arguments : line.environment)
        .push_back(&line.strings[at]);
  return true;
}

// Libraries read some variables when they are loaded, but none of those that shells and with_started.py set.
std::vector<std::string> sorted(char** environment) {
  std::vector<std::string> entries;
  for (; *environment; ++environment) {
    const std::string entry = *environment;
    const auto is = [&](const char* name) { return entry.starts_with(name); };
    if (!is("LD_PRELOAD=") && !is("ATTENTIVE_STARTED_SOCKET=") && !is("PWD=") && !is("OLDPWD=") &&
        !is("SHLVL=") && !is("_="))
      entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

void take_streams(const CommandLine& line) {
  auto file = line.streams.begin();
  for (int stream = 0; stream < 3; ++stream) {
    if (line.request.streams & 1u << stream)
      ::dup2(*file++, stream);
    else
      ::close(stream);
  }
  for (const int open : line.streams) ::close(open);
}

void take_signals(const CommandLine& line) {
  for (int number = 1; number < 32; ++number)
    if (number != SIGKILL && number != SIGSTOP)
      ::signal(number, line.request.ignored & 1u << number ? SIG_IGN : SIG_DFL);
}

// Reports how the process of a request ends, and ends it if its client is gone.
[[noreturn]] void watch(int client, pid_t process) {
  const int32_t number = process;
  write_all(client, &number, sizeof number);
  int status = 0;
  for (bool killed = false; ::waitpid(process, &status, WNOHANG) == 0;) {
    pollfd gone{.fd = client, .events = POLLRDHUP, .revents = 0};
    if (::poll(&gone, 1, /*ms=*/2) > 0 && !killed) killed = ::kill(process, SIGKILL) == 0;
  }
  const int32_t report = status;
  write_all(client, &report, sizeof report);
  std::_Exit(0);
}

// Returns in the process that runs the program for a client. This one waits for the next.
CommandLine next_command_line(int listening, char** environment) {
  for (;;) {
    const int client = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (client < 0) {
      if (errno == EINTR) continue;
      fail("accept");
    }
    if (::fork() != 0) {
      ::close(client);
      continue;
    }
    CommandLine line;
    if (!receive(client, line)) std::_Exit(125);
    line.environment.push_back(nullptr);
    line.arguments.push_back(nullptr);
    if (sorted(line.environment.data()) != sorted(environment)) {
      write_all(client, &kOtherEnvironment, sizeof kOtherEnvironment);
      std::_Exit(0);
    }
    const pid_t process = ::fork();
    if (process != 0) {
      ::close(line.folder);
      for (const int stream : line.streams) ::close(stream);
      watch(client, process);
    }
    ::close(client);
    ::close(listening);
    return line;
  }
}

int serve(int, char**, char** environment) {
  const char* number = std::getenv("ATTENTIVE_STARTED_SOCKET");
  if (!number) fail("ATTENTIVE_STARTED_SOCKET is not set");
  const std::filesystem::directory_iterator threads("/proc/self/task");
  if (std::distance(begin(threads), end(threads)) != 1)
    fail("a library has started threads, which a copy would lack");
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);

  static CommandLine line = next_command_line(std::atoi(number), environment);
  if (::fchdir(line.folder) != 0) fail("fchdir");
  ::close(line.folder);
  ::umask(line.request.mask);
  take_streams(line);
  take_signals(line);
  ::prctl(PR_SET_PDEATHSIG, 0);
  ::clearenv();
  for (auto** entry = line.environment.data(); *entry; ++entry) ::putenv(*entry);
  const int status = program_main(static_cast<int>(line.request.arguments), line.arguments.data(), ::environ);
  // LibTorch takes as long to unregister its operators at the end of a process as to register them.
  std::fflush(nullptr);
  std::_Exit(status);
}

}  // namespace

// The C library's function, which calls main().
extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*end)(), void* stack) {
  program_main = main;
  const auto original =
      reinterpret_cast<decltype(&__libc_start_main)>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  return original(serve, argc, argv, init, fini, end, stack);
}
