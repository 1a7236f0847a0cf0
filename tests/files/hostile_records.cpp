#include "files/hostile_torch_file.h"

// Records whose contents are wrong, and those that are larger than they look.

namespace attentive::test {
namespace {

using namespace std::string_literals;

void contents(HostileArchives& cases) {
  const auto says = [&](const char* which, std::string data, std::vector<std::string> words) {
    cases.entry(
        which + " '"s + data.substr(0, 20) + "'", which, [&](ZipEntry& e) { e.data = data; },
        std::move(words));
  };
  says("byteorder", "big", {"expected byteorder \"little\", got \"big\""});
  for (const char* other : {"", "Little", "middle", "little\n", "littl"})
    says("byteorder", other, {"expected byteorder \"little\", got "});
  says("byteorder", times(1'000'000, "little"), {"record \"byteorder\" has 6000000 bytes"});
  for (const char* other : {"", "x", "-1", "0\n", "99\n", "3.5", "99999999999999999999\n"})
    says("version", other, {"expected version 1 to 10, got "});
  says("version", times(1'000'000, "3"), {"record \"version\" has 1000000 bytes"});
  says("data/0", "", {"storage \"0\" is said to have 6 elements of 4 bytes, but has 0 bytes"});
  says("data/0", six_floats() + "x", {"6 elements of 4 bytes, but has 25 bytes"});
  says("data/0", six_floats().substr(1), {"6 elements of 4 bytes, but has 23 bytes"});
  says("data.pkl", "", {"its pickle is truncated"});
}

void packed(HostileArchives& cases) {
  const auto bomb = [&](const char* which, uint64_t size, uint64_t said) {
    cases.entry(
        which + " packed: "s + std::to_string(size) + " zeros that are called " + std::to_string(said), which,
        [&](ZipEntry& e) {
          e.data = deflated_zeros(size);
          e.method = 8;
          e.size = said;
          e.crc = crc32_of(std::string(size, '\0'));
        },
        {"is compressed"});
  };
  for (const char* which : {"data/0", "data.pkl"}) {
    bomb(which, 24, 24);
    bomb(which, 24, 4'000'000'000);
    bomb(which, 300'000'000, 300'000'000);
    bomb(which, 300'000'000, 24);
  }
  ZipFile many = good_archive();
  for (int i = 1; i < 60'000; ++i)
    many.entries.push_back({.name = "archive/data/" + std::to_string(i), .data = ""});
  many.entry("archive/version").crc = 1;
  cases.add("sixty thousand entries", many, {"record \"version\" is damaged: its CRC-32"});
  many.entry("archive/version").crc = {};
  many.entries.back().crc = 1;
  cases.add("sixty thousand storages, of which the last is damaged", many,
            {"its description does not mention storage \"1\""});
  const auto late = [&](Pickle pickle) {
    return archive_of(nine_million_values(std::move(pickle)).tensor().raw("t").stop());
  };
  auto unchecked = late(Pickle());
  unchecked.entry("archive/data/0").crc = 1;
  cases.add("nine million values before a wrong checksum", unchecked,
            {"storage \"0\" is damaged: its CRC-32"});
}

}  // namespace

std::vector<HostileFile> hostile_records() {
  HostileArchives cases;
  contents(cases);
  packed(cases);
  return cases.take();
}

}  // namespace attentive::test
