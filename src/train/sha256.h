#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace attentive {

/// SHA-256 (FIPS 180-4) of bytes that come in parts.
class Sha256 {
 public:
  void add(std::string_view bytes);
  /// The digest of all bytes so far, as 64 lower-case hexadecimal digits.
  std::string digest() const;

 private:
  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> block_{};  // the bytes that do not fill a block yet
  uint64_t size_ = 0;
};

/// SHA-256 as 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace attentive
