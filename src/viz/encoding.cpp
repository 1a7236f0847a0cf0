#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <utility>
#include <zlib.h>

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "base/strings.h"
#include "viz/page_data.h"

namespace attentive::viz {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void append(std::vector<uint8_t>& bytes, uint32_t value, int size) {
  for (int i = 0; i < size; ++i) bytes.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

class Deflater {
 public:
  Deflater() {
    // A failure means lack of memory: the arguments are right, and the library matches its header.
    if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, /*memLevel=*/9,
                     Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc();
  }
  ~Deflater() { deflateEnd(&stream_); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  // Appends bytes and ends a block or, with `last`, the stream.
  void add(std::span<const uint8_t> bytes, bool last) {
    stream_.next_in = const_cast<Bytef*>(bytes.data());  // zlib only reads it
    auto left = bytes.size();
    for (;;) {
      if (stream_.avail_in == 0) {
        stream_.avail_in = static_cast<uInt>(std::min<size_t>(left, std::numeric_limits<uInt>::max()));
        left -= stream_.avail_in;
      }
      if (used_ == out_.size()) out_.resize(2 * out_.size());
      const auto room = std::min<size_t>(out_.size() - used_, std::numeric_limits<uInt>::max());
      stream_.next_out = out_.data() + used_;
      stream_.avail_out = static_cast<uInt>(room);
      deflate(&stream_, left > 0 ? Z_NO_FLUSH : last ? Z_FINISH : Z_BLOCK);
      used_ += room - stream_.avail_out;
      // Unused output space means that zlib has nothing more to write.
      if (left == 0 && stream_.avail_in == 0 && stream_.avail_out > 0) return;
    }
  }

  std::vector<uint8_t> take() {
    out_.resize(used_);
    return std::move(out_);
  }

 private:
  z_stream stream_{};
  std::vector<uint8_t> out_ = std::vector<uint8_t>(1 << 16);
  size_t used_ = 0;
};

constexpr uint32_t kHeaders = 54;

// Writes a BITMAPFILEHEADER and a BITMAPINFOHEADER.
std::vector<uint8_t> bmp_headers(uint32_t width, uint32_t height, uint32_t size) {
  std::vector<uint8_t> bytes{'B', 'M'};
  append(bytes, kHeaders + size, 4);
  append(bytes, 0, 4);
  append(bytes, kHeaders, 4);
  append(bytes, 40, 4);  // size of the second header
  append(bytes, width, 4);
  append(bytes, height, 4);
  append(bytes, 1, 2);   // planes
  append(bytes, 24, 2);  // bits per pixel
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

std::string base91(std::span<const uint8_t> bytes) {
  const auto character = [](uint32_t value) { return static_cast<char>(value + (value < 27 ? 33 : 34)); };
  std::string text;
  text.reserve(bytes.size() * 16 / 13 + 2);
  uint32_t bits = 0;
  int count = 0;
  const auto pair = [&] {
    const auto value = bits & 0x1FFFU;
    text += character(value % 91);
    text += character(value / 91);
  };
  for (const auto byte : bytes) {
    bits |= static_cast<uint32_t>(byte) << count;
    count += 8;
    if (count < 13) continue;
    pair();
    bits >>= 13;
    count -= 13;
  }
  if (count > 6) {
    pair();
  } else if (count > 0) {
    text += character(bits);
  }
  return text;
}

std::vector<uint8_t> deflated(const std::vector<std::vector<uint8_t>>& parts) {
  Deflater deflater;
  for (const auto& part : parts) deflater.add(part, &part == &parts.back());
  return deflater.take();
}

std::string with_lone_bytes(std::string_view token) {
  std::string shown;
  while (!token.empty()) {
    const auto good = utf8_prefix(token);
    shown += token.substr(0, good);
    token.remove_prefix(good);
    if (token.empty()) break;
    shown += fmt::format("‹{:02X}›", static_cast<uint8_t>(token.front()));
    token.remove_prefix(1);
  }
  return shown;
}

std::string picture_uri(const at::Tensor& pixels) {
  const auto levels = (pixels.to(at::kFloat) * 255).round().to(at::kByte).expand({3, -1, -1}).contiguous();
  const auto height = levels.size(1), width = levels.size(2);
  const auto row = (3 * width + 3) / 4 * 4;  // rows begin at multiples of four bytes
  auto bytes = bmp_headers(static_cast<uint32_t>(width), static_cast<uint32_t>(height),
                           static_cast<uint32_t>(row * height));
  const auto* plane = levels.const_data_ptr<uint8_t>();
  for (int64_t y = height - 1; y >= 0; --y) {  // bottom row first
    for (int64_t x = 0; x < width; ++x) {
      for (const int64_t channel : {2, 1, 0}) bytes.push_back(plane[(channel * height + y) * width + x]);
    }
    bytes.insert(bytes.end(), static_cast<size_t>(row - 3 * width), 0);
  }
  return "data:image/bmp;base64," + base64(bytes);
}

}  // namespace attentive::viz
