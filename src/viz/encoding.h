#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace attentive::viz {

/// Encodes bytes in base 64 (RFC 4648), with padding.
std::string base64(std::span<const uint8_t> bytes);

/// Encodes the bytes of numbers as they are in memory, which is little-endian on every machine that this
/// package supports.
template <class Number>
std::string base64_of(const std::vector<Number>& numbers) {
  return base64({reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size() * sizeof(Number)});
}
/// Encodes the bytes of a float32 tensor.
std::string base64_of(const at::Tensor& tensor);

/// Encodes 13 bits in two characters, the lower digit in base 91 first, beginning with the lowest bit; a rest
/// of at most 6 bits is one character. The characters are printable ASCII from `!` to `|` without `<`, which
/// in an element's text is 8 % shorter than base64.
std::string base91(std::span<const uint8_t> bytes);

/// Compresses bytes to raw DEFLATE (RFC 1951), which `DecompressionStream('deflate-raw')` reads. The parts
/// are concatenated in one stream, but each has its own blocks, because their statistics differ.
std::vector<uint8_t> deflated(const std::vector<std::vector<uint8_t>>& parts);

/// Replaces every byte of a token that is not part of a UTF-8 character by text such as ‹F0›: a character may
/// be split into several tokens.
std::string with_lone_bytes(std::string_view token);

/// Encodes pixels (1 or 3, H, W) from 0 to 1 as a picture that a browser shows: a 24-bit BMP as a data URI.
std::string picture_uri(const at::Tensor& pixels);

}  // namespace attentive::viz
