#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

#include <catch2/catch_test_macros.hpp>

#include "files/torch/zip.h"

using namespace attentive;

namespace {

// Computes the CRC-32 by its definition, bit by bit.
uint32_t crc_by_bits(uint32_t before, const std::string& bytes) {
  uint32_t state = ~before;
  for (const unsigned char byte : bytes) {
    state ^= byte;
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) ? 0xEDB88320 : 0);
  }
  return ~state;
}

std::string random_bytes(size_t size) {
  std::mt19937 generator(7);
  std::string bytes(size, '\0');
  for (auto& byte : bytes) byte = static_cast<char>(generator());
  return bytes;
}

}  // namespace

TEST_CASE("known checksums", "[crc32]") {
  for (const auto& method : crc32_methods()) {
    INFO(method.name);
    CHECK(method.run(0, "", 0) == 0);
    CHECK(method.run(0, "123456789", 9) == 0xCBF43926);
    const std::string zeros(4096, '\0');
    CHECK(method.run(0, zeros.data(), zeros.size()) == 0xC71C0011);
  }
}

TEST_CASE("every way to a checksum gives the definition's, at every length and alignment", "[crc32]") {
  const auto bytes = random_bytes(4096);
  for (const auto& method : crc32_methods()) {
    INFO(method.name);
    for (size_t size = 0; size < 1400; size += size < 300 ? 1 : 37) {
      for (const size_t begin : {0, 1, 15}) {
        INFO("size " << size << ", begin " << begin);
        REQUIRE(method.run(0x12345678, bytes.data() + begin, size) ==
                crc_by_bits(0x12345678, bytes.substr(begin, size)));
      }
    }
    REQUIRE(method.run(0, bytes.data(), bytes.size()) == crc_by_bits(0, bytes));
  }
}

TEST_CASE("a checksum goes on where another one ended", "[crc32]") {
  const auto bytes = random_bytes(5000);
  for (const size_t cut : {0, 1, 64, 777, 2048, 5000}) {
    CHECK(crc32(crc32(0, bytes.data(), cut), bytes.data() + cut, bytes.size() - cut) ==
          crc_by_bits(0, bytes));
  }
}

TEST_CASE("checksums use the fastest way of a processor within the limit of the kernels", "[crc32]") {
  CpuFeatures none, products;
  products.pclmul = true;
  const auto name = [](const CpuFeatures& cpu, std::string_view limit) {
    return std::string(select_crc32(cpu, limit).name);
  };
#if defined(__x86_64__)
  const std::string fast = "pclmul";
#else
  const std::string fast = "tables";
#endif
  for (const auto* limit : {"", "avx2", "avx512", "default"}) CHECK(name(none, limit) == "tables");
  for (const auto* limit : {"", "avx2", "avx512"}) CHECK(name(products, limit) == fast);
  CHECK(name(products, "default") == "tables");
  CHECK(crc32_methods().back().name == name(this_cpu(), ""));
}

TEST_CASE("ATEN_CPU_CAPABILITY is the limit of every choice of instructions", "[crc32]") {
  const char* const limit = std::getenv("ATEN_CPU_CAPABILITY");
  CHECK(cpu_limit() == (limit ? limit : ""));
}
