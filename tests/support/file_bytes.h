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

}  // namespace attentive::test
