#include "viz/encoding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <string_view>
#include <zlib.h>

#include <ATen/TensorOperators.h>

namespace attentive::viz {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void append(std::vector<uint8_t>& bytes, uint32_t value, int size) {
  for (int i = 0; i < size; ++i) bytes.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

struct Deflater {
  Deflater() {
    // The other reasons to fail are a wrong argument and another version of the library.
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, /*memLevel=*/9,
                     Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc();
  }
  ~Deflater() { deflateEnd(&stream); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  z_stream stream{};
};

constexpr uint32_t kHeaders = 54;

// A BITMAPFILEHEADER and a BITMAPINFOHEADER.
std::vector<uint8_t> bmp_headers(uint32_t width, uint32_t height, uint32_t size) {
  std::vector<uint8_t> bytes{'B', 'M'};
  append(bytes, kHeaders + size, 4);
  append(bytes, 0, 4);
  append(bytes, kHeaders, 4);
  append(bytes, 40, 4);  // bytes of the second header
  append(bytes, width, 4);
  append(bytes, height, 4);
  append(bytes, 1, 2);   // planes
  append(bytes, 24, 2);  // bits of a pixel
  append(bytes, 0, 4);   // not compressed
  append(bytes, size, 4);
  for (int i = 0; i < 4; ++i) append(bytes, 0, 4);  // resolution, palette
  return bytes;
}

}  // namespace

std::string base64(std::span<const uint8_t> bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto given = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < given ? bytes[i + k] : 0U);
    for (size_t k = 0; k < 4; ++k) text += k <= given ? kDigits[group >> (18 - 6 * k) & 63U] : '=';
  }
  return text;
}

std::string base64_of(const at::Tensor& tensor) {
  const auto whole = tensor.contiguous();
  return base64({reinterpret_cast<const uint8_t*>(whole.const_data_ptr<float>()), whole.nbytes()});
}

std::vector<uint8_t> deflated(std::span<const uint8_t> bytes) {
  Deflater deflater;
  auto& stream = deflater.stream;
  std::vector<uint8_t> out(1 << 16);
  size_t used = 0, left = bytes.size();
  stream.next_in = const_cast<Bytef*>(bytes.data());  // zlib reads it only
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    if (stream.avail_in == 0) {
      stream.avail_in = static_cast<uInt>(std::min<size_t>(left, std::numeric_limits<uInt>::max()));
      left -= stream.avail_in;
    }
    if (used == out.size()) out.resize(2 * out.size());
    const auto room = std::min<size_t>(out.size() - used, std::numeric_limits<uInt>::max());
    stream.next_out = out.data() + used;
    stream.avail_out = static_cast<uInt>(room);
    status = deflate(&stream, left == 0 ? Z_FINISH : Z_NO_FLUSH);
    used += room - stream.avail_out;
  }
  out.resize(used);
  return out;
}

std::string picture_uri(const at::Tensor& pixels) {
  const auto levels = (pixels.to(at::kFloat) * 255).round().to(at::kByte).expand({3, -1, -1}).contiguous();
  const auto height = levels.size(1), width = levels.size(2);
  const auto row = (3 * width + 3) / 4 * 4;  // rows begin at multiples of four bytes
  auto bytes = bmp_headers(static_cast<uint32_t>(width), static_cast<uint32_t>(height),
                           static_cast<uint32_t>(row * height));
  const auto* plane = levels.const_data_ptr<uint8_t>();
  for (int64_t y = height - 1; y >= 0; --y) {  // the lowest row first
    for (int64_t x = 0; x < width; ++x) {
      for (const int64_t channel : {2, 1, 0}) bytes.push_back(plane[(channel * height + y) * width + x]);
    }
    bytes.insert(bytes.end(), static_cast<size_t>(row - 3 * width), 0);
  }
  return "data:image/bmp;base64," + base64(bytes);
}

}  // namespace attentive::viz
