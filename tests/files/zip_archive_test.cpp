#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <string_view>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "base/files.h"
#include "base/refusal.h"
#include "files/torch/zip.h"
#include "support/files.h"

using namespace attentive;
using Catch::Matchers::ContainsSubstring;

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

namespace {

constexpr uint64_t kLimit = 1 << 20;

// An archive with root/first "0123456789", an empty root/second, and root/b/third with 300 bytes.
std::string archive_bytes() {
  const TemporaryFolder folder;
  AtomicFile file(folder / "archive");
  ZipWriter writer(file, "root");
  writer.write("first", "0123456789");
  writer.write("second", "");
  writer.write("b/third", std::string(300, 'x'));
  writer.finish();
  file.commit();
  return test::read_bytes(folder / "archive");
}

template <class T>
void set(std::string& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

// The offsets of parts of the archive above, computed from its end.
struct Places {
  explicit Places(const std::string& bytes)
      : end(bytes.size() - zip::kEndSize),
        locator(end - zip::kLocator64Size),
        end64(locator - zip::kEnd64Size),
        central(zip::little<uint32_t>(bytes.data() + end + 16)) {
    size_t offset = central;
    for (auto& entry : entries) {
      entry = offset;
      offset += zip::kCentralSize + zip::little<uint16_t>(bytes.data() + offset + 28);
    }
    for (int i = 0; i < 3; ++i) headers[i] = zip::little<uint32_t>(bytes.data() + entries[i] + 42);
  }
  size_t end, locator, end64, central;
  size_t entries[3];
  size_t headers[3];
};

std::string refusal_of_archive(const std::string& bytes, uint64_t limit = kLimit) {
  try {
    const ByteSource source(bytes.data(), bytes.size());
    const ZipArchive archive(source, limit);
    for (const auto& record : archive.records()) {
      std::string data(record.size, '\0');
      archive.read(record, data.data());
    }
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
  return "accepted";
}

// Changes the archive and returns the refusal.
std::string refusal_after(const std::function<void(std::string&, const Places&)>& change) {
  auto bytes = archive_bytes();
  const Places places(bytes);
  change(bytes, places);
  return refusal_of_archive(bytes);
}

}  // namespace

TEST_CASE("an archive is read as it was written", "[zip_archive]") {
  const auto bytes = archive_bytes();
  const ByteSource source(bytes.data(), bytes.size());
  const ZipArchive archive(source, kLimit);
  CHECK(archive.root() == "root");
  REQUIRE(archive.records().size() == 3);
  CHECK(archive.records()[0].name == "first");
  CHECK(archive.records()[2].name == "b/third");
  CHECK(archive.find("third") == nullptr);
  CHECK(archive.find("root/first") == nullptr);
  const auto* first = archive.find("first");
  REQUIRE(first != nullptr);
  std::string text(first->size, '\0');
  archive.read(*first, text.data());
  CHECK(text == "0123456789");
  for (const auto& record : archive.records()) CHECK(record.offset % 64 == 0);
  const std::string third(300, 'x');
  CHECK(archive.find("b/third")->crc == crc32(0, third.data(), third.size()));
}

TEST_CASE("a central directory has a limit", "[zip_archive][errors]") {
  const auto bytes = archive_bytes();
  const Places places(bytes);
  const auto size = places.end64 - places.central;
  CHECK(refusal_of_archive(bytes, size) == "accepted");
  CHECK_THAT(refusal_of_archive(bytes, size - 1), ContainsSubstring("exceeds the limit"));
}

TEST_CASE("an archive ends at its end record", "[zip_archive][errors]") {
  const auto bytes = archive_bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    INFO(size);
    REQUIRE(refusal_of_archive(bytes.substr(0, size)) != "accepted");
  }
  CHECK_THAT(refusal_of_archive(bytes + '\0'), ContainsSubstring("no zip end of central directory"));
  CHECK_THAT(refusal_of_archive(bytes + bytes), ContainsSubstring("is not right before the other one"));
  CHECK_THAT(refusal_after([](auto& b, auto& p) { set<uint16_t>(b, p.end + 20, 1); }),
             ContainsSubstring("followed by something else"));
}

TEST_CASE("the two end records agree", "[zip_archive][errors]") {
  const auto refused = [](const std::function<void(std::string&, const Places&)>& change,
                          const char* reason) {
    CHECK_THAT(refusal_after(change), ContainsSubstring(reason));
  };
  refused([](auto& b, auto& p) { set<uint16_t>(b, p.end + 10, 2), set<uint16_t>(b, p.end + 8, 2); },
          "disagree: 2 and 3");
  refused([](auto& b, auto& p) { set<uint32_t>(b, p.end + 12, 7); }, "disagree: 7");
  refused([](auto& b, auto& p) { set<uint32_t>(b, p.end + 16, 7); }, "disagree: 7");
  refused([](auto& b, auto& p) { set<uint16_t>(b, p.end + 4, 1); }, "several parts");
  refused([](auto& b, auto& p) { set<uint64_t>(b, p.end64 + 24, 2); }, "several parts");
  refused([](auto& b, auto& p) { set<uint32_t>(b, p.locator + 16, 2); }, "several parts");
  refused([](auto& b, auto& p) { set<uint64_t>(b, p.locator + 8, p.end64 - 1); }, "is not right before");
  refused([](auto& b, auto& p) { set<uint64_t>(b, p.end64 + 4, 45); }, "is not right before");
  refused(
      [](auto& b, auto& p) {
        set<uint64_t>(b, p.end64 + 48, p.central - 1);
        set<uint32_t>(b, p.end + 16, static_cast<uint32_t>(p.central - 1));
      },
      "does not end where the end record begins");
  // Fields that the 32-bit record leaves open are read from the zip64 record.
  CHECK(refusal_after([](auto& b, auto& p) {
          set<uint16_t>(b, p.end + 8, 0xFFFF), set<uint16_t>(b, p.end + 10, 0xFFFF);
          set<uint32_t>(b, p.end + 12, 0xFFFFFFFF), set<uint32_t>(b, p.end + 16, 0xFFFFFFFF);
        }) == "accepted");
}

TEST_CASE("the number of records is that of the central directory", "[zip_archive][errors]") {
  const auto count = [](uint64_t entries) {
    return refusal_after([=](auto& b, auto& p) {
      set<uint64_t>(b, p.end64 + 24, entries), set<uint64_t>(b, p.end64 + 32, entries);
      set<uint16_t>(b, p.end + 8, 0xFFFF), set<uint16_t>(b, p.end + 10, 0xFFFF);
    });
  };
  CHECK(count(3) == "accepted");
  CHECK_THAT(count(2), ContainsSubstring("holds 3 records, not 2"));
  CHECK_THAT(count(uint64_t{1} << 62), ContainsSubstring("do not fit"));
}

TEST_CASE("records are stored, whole and plain", "[zip_archive][errors]") {
  const auto refused = [](const std::function<void(std::string&, const Places&)>& change,
                          const char* reason) {
    CHECK_THAT(refusal_after(change), ContainsSubstring(reason));
  };
  refused([](auto& b, auto& p) { set<uint16_t>(b, p.entries[0] + 10, 8); }, "is compressed");
  refused([](auto& b, auto& p) { set<uint16_t>(b, p.entries[0] + 8, 0x0809); }, "encrypted");
  refused([](auto& b, auto& p) { set<uint32_t>(b, p.entries[0] + 20, 9); }, "in 9 bytes instead of 10");
  refused([](auto& b, auto& p) { set<uint16_t>(b, p.entries[0] + 34, 1); }, "several parts");
  refused([](auto& b, auto& p) { set<uint32_t>(b, p.entries[0], 0); }, "is damaged after record 0");
  refused([](auto& b, auto& p) { set<uint16_t>(b, p.entries[2] + 28, 0xFFFF); }, "is damaged after record 2");
  refused([](auto& b, auto& p) { set<uint32_t>(b, p.entries[0] + 24, 0xFFFFFFFF); }, "lacks its zip64 field");
  refused([](auto& b, auto& p) { b[p.headers[0] + 64] ^= 1; }, "is damaged: its CRC-32");
}

TEST_CASE("records lie one after another", "[zip_archive][errors]") {
  const auto refused = [](const std::function<void(std::string&, const Places&)>& change,
                          const char* reason) {
    CHECK_THAT(refusal_after(change), ContainsSubstring(reason));
  };
  refused(
      [](auto& b, auto& p) { set<uint32_t>(b, p.entries[1] + 42, static_cast<uint32_t>(p.headers[0] + 40)); },
      "overlaps the next one");
  refused([](auto& b, auto& p) { set<uint32_t>(b, p.entries[0] + 42, 1); },
          "does not begin at its first byte");
  refused([](auto& b,
             auto& p) { set<uint32_t>(b, p.entries[0] + 20, 400), set<uint32_t>(b, p.entries[0] + 24, 400); },
          "overlaps the next one");
  refused([](auto& b, auto& p) { set<uint16_t>(b, p.headers[0] + 28, 0xFFFF); }, "overlaps the next one");
  refused([](auto& b, auto& p) { set<uint32_t>(b, p.entries[2] + 42, 0xFFFFFFF0); }, "overlaps the next one");
  refused([](auto& b,
             auto& p) { set<uint32_t>(b, p.entries[0] + 20, 9), set<uint32_t>(b, p.entries[0] + 24, 9); },
          "are not a data descriptor");
  // Without the flag, the descriptor belongs to no record.
  refused(
      [](auto& b, auto& p) {
        set<uint16_t>(b, p.entries[0] + 8, 0x0800), set<uint16_t>(b, p.headers[0] + 6, 0x0800);
        set<uint32_t>(b, p.headers[0] + 14, zip::little<uint32_t>(b.data() + p.entries[0] + 16));
        set<uint32_t>(b, p.headers[0] + 18, 10), set<uint32_t>(b, p.headers[0] + 22, 10);
      },
      "belong to nothing");
}

TEST_CASE("a local header and a descriptor say what the central directory says", "[zip_archive][errors]") {
  const auto refused = [](const std::function<void(std::string&, const Places&)>& change) {
    CHECK_THAT(refusal_after(change), ContainsSubstring("differs from the central directory"));
  };
  refused([](auto& b, auto& p) { set<uint32_t>(b, p.headers[0], 0); });
  refused([](auto& b, auto& p) { set<uint16_t>(b, p.headers[0] + 6, 0x0800); });
  refused([](auto& b, auto& p) { set<uint16_t>(b, p.headers[0] + 8, 8); });
  refused([](auto& b, auto& p) { set<uint32_t>(b, p.headers[0] + 14, 1); });
  refused([](auto& b, auto& p) { set<uint32_t>(b, p.headers[0] + 18, 9); });
  refused([](auto& b, auto& p) { set<uint32_t>(b, p.headers[0] + 22, 9); });
  refused([](auto& b, auto& p) { set<uint16_t>(b, p.headers[0] + 26, 11); });
  refused([](auto& b, auto& p) { b[p.headers[0] + 30] = 'R'; });
  refused([](auto& b, auto& p) { b[p.headers[0] + 39] = 'T'; });
  const size_t descriptor = 64 + 10;
  for (const size_t field : {0, 4, 8, 12}) {
    refused([&](auto& b, auto& p) { b[p.headers[0] + descriptor + field] ^= 1; });
  }
}

TEST_CASE("sizes may stand in zip64 fields", "[zip_archive]") {
  // One record "r/a" of 3 bytes, all of whose sizes are in zip64 fields.
  const auto u = [](uint64_t value, size_t bytes) {
    return std::string(reinterpret_cast<const char*>(&value), bytes);
  };
  const uint32_t crc = crc32(0, "abc", 3);
  const auto make = [&](uint64_t local_size, uint64_t central_size) {
    const auto local_extra = u(1, 2) + u(16, 2) + u(local_size, 8) + u(3, 8);
    const auto central_extra =
        u(0x7777, 2) + u(2, 2) + "ab" + u(1, 2) + u(24, 2) + u(central_size, 8) + u(3, 8) + u(0, 8);
    auto bytes = u(zip::kLocalHeader, 4) + u(45, 2) + u(0, 2) + u(0, 2) + u(0, 4) + u(crc, 4) +
                 u(0xFFFFFFFF, 4) + u(0xFFFFFFFF, 4) + u(3, 2) + u(local_extra.size(), 2) + "r/a" +
                 local_extra + "abc";
    const auto central = u(zip::kCentralHeader, 4) + u(45, 2) + u(45, 2) + u(0, 2) + u(0, 2) + u(0, 4) +
                         u(crc, 4) + u(0xFFFFFFFF, 4) + u(0xFFFFFFFF, 4) + u(3, 2) +
                         u(central_extra.size(), 2) + u(0, 2) + u(0, 2) + u(0, 2) + u(0, 4) +
                         u(0xFFFFFFFF, 4) + "r/a" + central_extra;
    const auto offset = bytes.size();
    return bytes + central + u(zip::kEnd, 4) + u(0, 4) + u(1, 2) + u(1, 2) + u(central.size(), 4) +
           u(offset, 4) + u(0, 2);
  };
  CHECK(refusal_of_archive(make(3, 3)) == "accepted");
  CHECK_THAT(refusal_of_archive(make(2, 3)), ContainsSubstring("local header differs"));
  CHECK_THAT(refusal_of_archive(make(3, 2)), ContainsSubstring("instead of 2"));
}

TEST_CASE("names are plain, distinct and below one root", "[zip_archive][errors]") {
  const auto named = [](const char* root, std::initializer_list<std::string> names,
                        const char* other_root = nullptr) {
    const TemporaryFolder folder;
    AtomicFile file(folder / "archive");
    ZipWriter writer(file, root);
    for (const auto& name : names) writer.write(name, "data");
    writer.finish();
    file.commit();
    auto bytes = test::read_bytes(folder / "archive");
    if (other_root != nullptr) {  // of the last record
      const auto local = bytes.rfind("PK\x03\x04"), central = bytes.rfind("PK\x01\x02");
      bytes.replace(local + zip::kLocalSize, std::strlen(root), other_root);
      bytes.replace(central + zip::kCentralSize, std::strlen(root), other_root);
    }
    return refusal_of_archive(bytes);
  };
  CHECK(named("r", {"a", "b/c", ".hidden", "größe"}) == "accepted");
  CHECK_THAT(named("r", {"a", "a"}), ContainsSubstring("holds record \"a\" twice"));
  CHECK_THAT(named("r", {"a", "b"}, "s"), ContainsSubstring("two root folders, \"r\" and \"s\""));
  for (const std::string name : {"..", "a/../b", "./a", "a//b", "a/", "", "a\\b", "\xFF"}) {
    INFO(name);
    CHECK_THAT(named("r", {name}), ContainsSubstring("no plain name"));
  }
  CHECK_THAT(named("r", {std::string("a\0b", 3)}), ContainsSubstring("no plain name"));
  CHECK_THAT(named("", {"a"}), ContainsSubstring("no plain name"));
  CHECK_THAT(named("r", {}), ContainsSubstring("without records"));
}
