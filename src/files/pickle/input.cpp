#include "files/pickle/input.h"

#include <algorithm>
#include <cstdint>
#include <new>

#include "base/refusal.h"

namespace attentive::pickle {

// Reserves space once for all bytes that may ever be taken. Only address space is used until bytes are read;
// an array that grew instead would have to be copied.
void PickleInput::reserve() {
  if (bytes_) return;
  bytes_.reset(static_cast<char*>(std::malloc(std::max<uint64_t>(std::min(size_, limit_), 1))));
  if (!bytes_) throw std::bad_alloc();
}

uint32_t PickleInput::load_all() {
  if (size_ > limit_) {
    refuse("a description of {} bytes exceeds the limit of {} (max_pickle_bytes)", size_, limit_);
  }
  reserve();
  loaded_ = size_;
  return source_.read_and_sum(begin_, bytes_.get(), size_);
}

void PickleInput::load(uint64_t count) {
  constexpr uint64_t kFirst = 4096;
  const auto wanted = std::min({std::max({count, 2 * loaded_, kFirst}), size_, limit_});
  if (count > wanted) {
    refuse("its description exceeds the limit of {} bytes (max_pickle_bytes)", limit_);
  }
  reserve();
  source_.read(begin_ + loaded_, bytes_.get() + loaded_, wanted - loaded_);
  loaded_ = wanted;
}

const char* PickleInput::take(uint64_t count) {
  if (count > remaining()) {
    refuse("its pickle is truncated: {} bytes are needed at byte {}, {} are left", count, position_,
           remaining());
  }
  if (position_ + count > loaded_) load(position_ + count);
  const auto* bytes = bytes_.get() + position_;
  position_ += count;
  return bytes;
}

std::string_view PickleInput::take_line(uint64_t longest) {
  const auto begin = position_;
  while (position_ - begin <= longest) {
    if (*take(1) == '\n') return text(begin, position_ - 1 - begin);
  }
  refuse("its pickle holds a name of more than {} bytes at byte {}", longest, begin);
}

}  // namespace attentive::pickle

namespace attentive {
namespace {

constexpr uint32_t kBase = 1'000'000'000;
constexpr size_t kDigits = 9;  // decimal digits of kBase

// Negates a number in two's complement.
void negate(std::string& bytes) {
  unsigned carry = 1;
  for (auto& byte : bytes) {
    const unsigned sum = (~static_cast<unsigned>(static_cast<unsigned char>(byte)) & 0xFF) + carry;
    byte = static_cast<char>(sum & 0xFF);
    carry = sum >> 8;
  }
}

bool is_negative(std::string_view bytes) {
  return !bytes.empty() && (bytes.back() & 0x80) != 0;
}

}  // namespace

std::string decimal_of(std::string_view bytes) {
  const bool negative = is_negative(bytes);
  std::string magnitude(bytes);
  if (negative) negate(magnitude);
  std::string digits;  // the lowest first
  for (auto end = magnitude.size(); end > 0;) {
    uint64_t remainder = 0;
    for (auto i = end; i-- > 0;) {
      remainder = (remainder << 8) | static_cast<unsigned char>(magnitude[i]);
      magnitude[i] = static_cast<char>(remainder / kBase);
      remainder %= kBase;
    }
    for (size_t k = 0; k < kDigits; ++k, remainder /= 10) digits += static_cast<char>('0' + remainder % 10);
    while (end > 0 && magnitude[end - 1] == 0) --end;
  }
  while (digits.size() > 1 && digits.back() == '0') digits.pop_back();
  if (digits.empty()) digits = "0";
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string bytes_of(std::string_view decimal, size_t max_bytes) {
  const bool negative = !decimal.empty() && decimal.front() == '-';
  if (negative) decimal.remove_prefix(1);
  const bool valid = !decimal.empty() &&
                     std::all_of(decimal.begin(), decimal.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!valid || decimal.size() > 3 * max_bytes) return {};
  std::string bytes;
  for (const char digit : decimal) {
    unsigned carry = static_cast<unsigned>(digit - '0');
    for (auto& byte : bytes) {
      carry += 10 * static_cast<unsigned char>(byte);
      byte = static_cast<char>(carry & 0xFF);
      carry >>= 8;
    }
    if (carry > 0) bytes += static_cast<char>(carry);
  }
  bytes += '\0';  // room for the sign bit
  if (negative) negate(bytes);
  while (bytes.size() > 1) {
    const auto below = static_cast<unsigned char>(bytes[bytes.size() - 2]);
    const auto sign = static_cast<unsigned char>(bytes.back());
    if (sign != ((below & 0x80) ? 0xFF : 0)) break;
    bytes.pop_back();
  }
  return bytes.size() > max_bytes ? std::string() : bytes;
}

}  // namespace attentive
