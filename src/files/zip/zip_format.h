#pragma once

// Numbers and structures of the zip format (PKWARE's APPNOTE, sections 4.3 to 4.5), shared by reader and
// writer.

#include <bit>
#include <cstdint>
#include <cstring>

namespace attentive::zip {

static_assert(std::endian::native == std::endian::little, "zip files are little-endian");

inline constexpr uint32_t kLocalHeader = 0x04034B50;
inline constexpr uint32_t kDescriptor = 0x08074B50;
inline constexpr uint32_t kCentralHeader = 0x02014B50;
inline constexpr uint32_t kEnd = 0x06054B50;
inline constexpr uint32_t kEnd64 = 0x06064B50;
inline constexpr uint32_t kLocator64 = 0x07064B50;

inline constexpr uint64_t kLocalSize = 30;
inline constexpr uint64_t kCentralSize = 46;
inline constexpr uint64_t kEndSize = 22;
inline constexpr uint64_t kEnd64Size = 56;
inline constexpr uint64_t kLocator64Size = 20;
inline constexpr uint64_t kDescriptorSize = 16;
inline constexpr uint64_t kDescriptor64Size = 24;

inline constexpr uint16_t kHasDescriptor = 0x0008;
inline constexpr uint16_t kUtf8 = 0x0800;
inline constexpr uint16_t kStored = 0;
inline constexpr uint16_t kZip64 = 0x0001;  // id of the extra field

inline constexpr uint16_t kIn64 = 0xFFFF;  // means that the value is in a zip64 structure
inline constexpr uint32_t kIn64Wide = 0xFFFFFFFF;

template <class T>
T little(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

}  // namespace attentive::zip
