#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

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

}  // namespace attentive::test
