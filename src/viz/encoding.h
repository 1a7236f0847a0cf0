#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace attentive::viz {

/// RFC 4648, with padding.
std::string base64(std::span<const uint8_t> bytes);

/// The bytes of numbers as they lie in memory, which is little-endian on every machine that this package
/// supports.
template <class Number>
std::string base64_of(const std::vector<Number>& numbers) {
  return base64({reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size() * sizeof(Number)});
}
/// The same of a float32 tensor.
std::string base64_of(const at::Tensor& tensor);

/// 13 bits in two characters, the lower of 91 first and the lowest bit first; a rest of at most 6 bits is one
/// character. Printable ASCII from `!` to `|` without `<`: in an element's text it is 8 % shorter than base64.
std::string base91(std::span<const uint8_t> bytes);

/// Raw DEFLATE (RFC 1951), as `DecompressionStream('deflate-raw')` reads it. The parts follow each other
/// in one stream, each in blocks of its own, as their bytes are distributed unlike each other.
std::vector<uint8_t> deflated(const std::vector<std::vector<uint8_t>>& parts);

/// A token in which every byte that is not part of a UTF-8 character stands as ‹F0›: a character may be
/// several tokens.
std::string with_lone_bytes(std::string_view token);

/// Pixels (1 or 3, H, W) from 0 to 1 as a picture that a browser shows: a BMP of 24 bits as a data URI.
std::string picture_uri(const at::Tensor& pixels);

}  // namespace attentive::viz
