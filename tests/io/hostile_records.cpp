#include "io/hostile_torch_file.h"

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
  says("byteorder", "big", {"big"});
  for (const char* other : {"", "Little", "middle", "little\n", "littl"})
    says("byteorder", other, {"byteorder"});
  says("byteorder", times(1'000'000, "little"), {"byteorder"});
  for (const char* other : {"", "x", "-1", "0\n", "99\n", "3.5", "99999999999999999999\n"})
    says("version", other, {"version"});
  says("version", times(1'000'000, "3"), {"version"});
  says("data/0", "", {"storage \"0\""});
  says("data/0", six_floats() + "x", {"storage \"0\""});
  says("data/0", six_floats().substr(1), {"storage \"0\""});
  says("data.pkl", "", {});
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
        {"compress"});
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
  cases.add("sixty thousand entries", many, {});
  many.entry("archive/version").crc = {};
  many.entries.back().crc = 1;
  cases.add("sixty thousand storages, of which the last is damaged", many, {});
  const auto late = [&](Pickle pickle) {
    return archive_of(nine_million_values(std::move(pickle)).tensor().raw("t").stop());
  };
  auto unchecked = late(Pickle());
  unchecked.entry("archive/data/0").crc = 1;
  cases.add("nine million values before a wrong checksum", unchecked, {});
}

}  // namespace

std::vector<HostileFile> hostile_records() {
  HostileArchives cases;
  contents(cases);
  packed(cases);
  return cases.take();
}

}  // namespace attentive::test
