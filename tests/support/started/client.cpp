// Takes the place of a program that with_started.py has started: has it run this command line, with this
// process's working folder, standard streams and signals, and ends as it ended.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <sys/wait.h>
#include <vector>

#include "started/request.h"

using namespace attentive::test::started;

namespace {

constexpr std::array kForwarded = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
volatile sig_atomic_t running = 0;

void forward(int number) {
  ::kill(running, number);
}

// The program may have begun before this process knows its number: signals wait until then.
void hold_signals(bool held) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : kForwarded) ::sigaddset(&set, number);
  ::sigprocmask(held ? SIG_BLOCK : SIG_UNBLOCK, &set, nullptr);
}

// From now on, every signal goes to the process that runs the program.
void forward_signals(pid_t process) {
  running = process;
  struct sigaction action {};
  action.sa_handler = forward;
  for (const int number : kForwarded) ::sigaction(number, &action, nullptr);
  hold_signals(false);
}

uint32_t ignored_signals() {
  uint32_t ignored = 0;
  for (int number = 1; number < 32; ++number) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) ignored |= 1u << number;
  }
  return ignored;
}

int connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) fail("too long a path");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  // Above the standard streams, any of which may be closed.
  const int low = ::socket(AF_UNIX, SOCK_STREAM, 0), file = ::fcntl(low, F_DUPFD_CLOEXEC, 3);
  ::close(low);
  if (file < 0 || ::connect(file, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    fail(path.c_str());
  return file;
}

// Sends the request's beginning together with the working folder and the open standard streams.
void send_with_files(int to, Request& request, const std::vector<int>& files) {
  iovec part{.iov_base = &request, .iov_len = sizeof request};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
  auto* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
  if (::sendmsg(to, &message, MSG_NOSIGNAL) != sizeof request) fail("sendmsg");
}

[[noreturn]] void end_as(int status) {
  if (WIFSIGNALED(status)) {
    ::signal(WTERMSIG(status), SIG_DFL);
    ::raise(WTERMSIG(status));
  }
  std::_Exit(WEXITSTATUS(status));
}

}  // namespace

int main(int argc, char** argv, char** environment) {
  const std::string here = argv[0];
  const auto program = std::filesystem::read_symlink(here + ".program").string();
  const int to = connect_to(here + ".socket");

  std::string strings;
  const auto add = [&](const char* text) { strings.append(text, std::strlen(text) + 1); };
  add(program.c_str());
  for (int n = 1; n < argc; ++n) add(argv[n]);
  for (auto** entry = environment; *entry; ++entry) add(*entry);

  const int folder = ::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  std::vector<int> files{::fcntl(folder, F_DUPFD_CLOEXEC, 3)};
  ::close(folder);
  Request request{static_cast<uint32_t>(strings.size()), static_cast<uint32_t>(argc), 0, ignored_signals(),
                  ::umask(0)};
  ::umask(request.mask);
  for (int stream = 0; stream < 3; ++stream)
    if (::fcntl(stream, F_GETFD) >= 0) {
      request.streams |= 1u << stream;
      files.push_back(stream);
    }
  hold_signals(true);
  send_with_files(to, request, files);
  int32_t process = 0, status = 0;
  if (!write_all(to, strings.data(), strings.size()) || !read_all(to, &process, sizeof process))
    fail(program.c_str());
  if (process == kOtherEnvironment) {
    hold_signals(false);
    ::execv(program.c_str(), argv);
    fail(program.c_str());
  }
  forward_signals(process);
  if (!read_all(to, &status, sizeof status)) fail(program.c_str());
  end_as(status);
}
