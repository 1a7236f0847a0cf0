#pragma once

#include <cstdint>
#include <span>
#include <string>
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

/// Raw DEFLATE (RFC 1951), as `DecompressionStream('deflate-raw')` reads it.
std::vector<uint8_t> deflated(std::span<const uint8_t> bytes);

/// Pixels (1 or 3, H, W) from 0 to 1 as a picture that a browser shows: a BMP of 24 bits as a data URI.
std::string picture_uri(const at::Tensor& pixels);

}  // namespace attentive::viz
