#include "common/run_main.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <attentive/version.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ATTENTIVE_LOOKS_FOR_LEAKS
#endif
#endif

namespace apps {
namespace {

constexpr int kOutputLost = 1;
constexpr int kReaderGone = 128 + SIGPIPE;

// The next opened file would get the number of a closed standard stream, and receive the output meant for it.
void fill_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // Opened for reading only, so that writing still fails.
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) (void)!::open("/dev/null", O_RDONLY);
  }
}

int parse_and_work(CLI::App& app, int argc, char** argv, const std::function<int()>& work,
                   const ExitStatuses& statuses) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // includes --help and --version
    std::ostringstream out, err;
    const int status = app.exit(error, out, err) == 0 ? 0 : statuses.usage;
    std::fputs(err.str().c_str(), stderr);
    fmt::print("{}", out.str());
    return status;
  }
  return work();
}

std::string described(int reason) {
  return reason == 0 ? std::string() : ": " + std::generic_category().message(reason);
}

int status_of(CLI::App& app, int argc, char** argv, const std::function<int()>& work,
              const ExitStatuses& statuses) {
  fill_closed_streams();
  const auto name = app.get_name();
  app.set_version_flag("--version", fmt::format("{} {}, LibTorch {}", name, ATTENTIVE_VERSION, TORCH_VERSION),
                       "Print the versions of this program and of LibTorch and exit");
  std::optional<int> status;
  std::string message;
  int reason = 0;  // why standard output could not be written, if known
  try {
    status = parse_and_work(app, argc, argv, work, statuses);
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::system_error& error) {
    message = error.what();
    reason = error.code().value();
  } catch (const std::exception& error) {
    message = error.what();
  }
  const bool printing_threw = std::ferror(stdout) != 0 && reason != 0;
  if (!message.empty() && !printing_threw) print_error(name + ": " + message);
  if (std::fflush(stdout) != 0) reason = errno;
  if (std::ferror(stdout) == 0) return status.value_or(statuses.failed);

  if (reason != EPIPE) print_error(name + ": cannot write to standard output" + described(reason));
  if (status.value_or(0) != 0) return *status;
  return reason == EPIPE ? kReaderGone : kOutputLost;
}

}  // namespace

void flush_output() {
  if (std::fflush(stdout) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot write to standard output");
  }
}

void print_error(const std::string& line) {
  std::fputs((line + '\n').c_str(), stderr);
}

int run_main(CLI::App& app, int argc, char** argv, const std::function<int()>& work,
             const ExitStatuses& statuses) {
  const int status = status_of(app, argc, argv, work, statuses);
#if !defined(__SANITIZE_ADDRESS__) && !defined(ATTENTIVE_LOOKS_FOR_LEAKS)
  // LibTorch takes a tenth of a second to unregister its operators at the end of a process.
  std::fflush(nullptr);
  std::_Exit(status);
#else
  return status;
#endif
}

}  // namespace apps
