#pragma once

// Special files that may be found in place of a regular file, and that make a careless reader wait forever.

#include <cstring>
#include <filesystem>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "support/temporary_folder.h"

namespace attentive::test {

inline void make_pipe(const std::filesystem::path& path) {
  REQUIRE(::mkfifo(path.c_str(), 0666) == 0);
}

/// Makes a pipe without a writer, a socket, a folder and a link to the pipe, and returns them with an endless
/// device.
inline std::vector<std::filesystem::path> special_files(const TemporaryFolder& folder) {
  make_pipe(folder / "pipe");
  REQUIRE(::mkdir((folder / "folder").c_str(), 0777) == 0);
  REQUIRE(::symlink("pipe", (folder / "link").c_str()) == 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto name = (folder / "socket").string();
  REQUIRE(name.size() < sizeof(address.sun_path));
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  ::close(socket);
  return {folder / "pipe", folder / "folder", folder / "link", folder / "socket", "/dev/zero"};
}

}  // namespace attentive::test
