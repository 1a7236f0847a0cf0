#pragma once

// A client and a started program exchange requests and answers over a socket of the file system.

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace attentive::test::started {

/// Begins a request. The strings follow it: arguments and environment, each with its final zero.
struct Request {
  uint32_t bytes;  ///< of the strings
  uint32_t arguments;
  uint32_t streams;  ///< bit n: the standard stream n is open
  uint32_t ignored;  ///< bit n: signal n is ignored
  uint32_t mask;     ///< of new files
};

constexpr int32_t kOtherEnvironment =
    -1;  ///< instead of a process number: the client executes the program itself

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "started program: %s: %s\n", what, std::strerror(errno));
  std::_Exit(125);
}

inline bool read_all(int file, void* to, size_t count) {
  for (auto* at = static_cast<char*>(to); count > 0;) {
    const auto got = ::read(file, at, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    count -= static_cast<size_t>(got);
  }
  return true;
}

inline bool write_all(int file, const void* from, size_t count) {
  for (const auto* at = static_cast<const char*>(from); count > 0;) {
    const auto put = ::send(file, at, count, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    count -= static_cast<size_t>(put);
  }
  return true;
}

}  // namespace attentive::test::started
