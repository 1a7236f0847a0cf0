#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ftw.h>
#include <iterator>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <catch2/catch_test_macros.hpp>

namespace attentive::test {

/// The checkout from which tests read data: that of the build, or the one named by the environment variable
/// ATTENTIVE_SOURCE_DIR if the programs run on another machine.
std::string source_folder();

}  // namespace attentive::test

/// A fresh folder that is removed with everything in it at the end of a test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    auto pattern = (std::filesystem::temp_directory_path() / "attentive-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::system_error(errno, std::generic_category(), pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    // std::filesystem::remove_all is avoided here: libtorch_cpu.so exports that of an older libstdc++, which
    // crashes with the directory iterators of the current one.
    ::nftw(
        path_.c_str(), [](const char* path, const struct stat*, int, struct FTW*) { return ::remove(path); },
        16, FTW_DEPTH | FTW_PHYS);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

namespace attentive::test {

/// Returns the bytes of a file; of one that cannot be read, none.
inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Writes over a file in its place, as programs do that are not careful.
inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Writes a file anew. Where many files have one name in turn, the system then need not store each of them:
/// of a file that was emptied and written again, it begins to when the file is closed.
inline void write_new_file(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::remove(path);
  write_bytes(path, bytes);
}

// Special files that may be found in place of a regular file, and that make a careless reader wait forever.

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
