#include "files/hostile_torch_file.h"

// Zip64 records and fields that contradict other fields, or that claim more than the file holds.

namespace attentive::test {
namespace {

using namespace std::string_literals;

void zip64_end(HostileArchives& cases) {
  const auto add = [&](const char* name, const char* reason, const Zip64End& end, bool told = true) {
    auto file = with_zip64(good_archive(), end);
    if (told) file.count = 0xffff, file.directory_size = file.directory_offset = 0xffffffff;
    cases.add("zip64: "s + name, file, {reason});
  };
  constexpr const char* kNotBefore = "its zip64 end of the central directory is not right before the other";
  add("a count of 5", "holds 4 records, not 5", {.count = 5});
  add("a count of 2^63", "records do not fit", {.count = uint64_t{1} << 63});
  add("a count of ten million", "10000000 records do not fit", {.count = 10'000'000});
  add("two counts", kParts, {.count_here = 3});
  add("another count than the end record's", "disagree: 4 and 3", {.count = 3}, false);
  add("a directory of 2^63", kElsewhere, {.directory_size = uint64_t{1} << 63});
  add("a directory of another size than the end record's", "disagree: ", {.directory_size = 46}, false);
  add("a directory at 2^63", kElsewhere, {.directory_offset = uint64_t{1} << 63});
  add("a directory at 2^64 - 1", kElsewhere, {.directory_offset = ~uint64_t{0}});
  add("a directory elsewhere than the end record says", "disagree: ", {.directory_offset = 0}, false);
  add("a record of 2^63", kNotBefore, {.record_size = uint64_t{1} << 63});
  add("a record of 43", kNotBefore, {.record_size = 43});
  add("a record at 0", kNotBefore, {.record_offset = 0});
  add("a record at 2^64 - 1", kNotBefore, {.record_offset = ~uint64_t{0}});
  add("no record", kNotBefore, {.signature = "PKxx"});
  add("no locator", kElsewhere, {.locator_signature = "PKxx"});
  add("two disks", kParts, {.disks = 2});
}

void zip64_fields(HostileArchives& cases, const std::string& which) {
  const auto wide = [&](const char* name, std::string extra, bool size, bool packed, bool offset,
                        const std::string& reason) {
    cases.entry("zip64: " + which + name, which,
                [&](ZipEntry& e) {
                  e.extra = extra;
                  if (size) e.size = 0xffffffff;
                  if (packed) e.packed = 0xffffffff;
                  if (offset) e.offset = 0xffffffff;
                },
                {reason});
  };
  const auto field = [](std::initializer_list<uint64_t> values) {
    std::string bytes = little(1, 2) + little(8 * values.size(), 2);
    for (const auto value : values) bytes += little(value, 8);
    return bytes;
  };
  const std::string lacks = "record \"archive/" + which + "\" lacks its zip64 field";
  const std::string overlaps = "record \"" + which + "\" overlaps the next one";
  const std::string elsewhere = which == "data.pkl" ? "its first record does not begin at its first byte"
                                                    : "after record \"byteorder\" belong to nothing";
  wide(" of 4 GiB", "", true, true, false, lacks);
  wide(" at 4 GiB", "", false, false, true, lacks);
  wide(" of 2^63", field({uint64_t{1} << 63, uint64_t{1} << 63}), true, true, false, overlaps);
  wide(" of 2^64 - 1", field({~uint64_t{0}, ~uint64_t{0}}), true, true, false, overlaps);
  wide(" at 2^64 - 1", field({~uint64_t{0}}), false, false, true, elsewhere);
  wide(" at 2^63", field({uint64_t{1} << 63}), false, false, true, elsewhere);
  wide(" with half a field", field({24, 24}).substr(0, 12), true, true, false, lacks);
  wide(" with a field that claims more", little(1, 2) + little(64, 2) + little(24, 8), true, true, false,
       lacks);
  wide(" with one size of two", field({24}), true, true, false, "lacks a size in its zip64 field");
  wide(" with three bytes of a field", "\1\0\0"s, true, true, false, "has a broken extra field");
}

}  // namespace

void add_hostile_zip64(HostileArchives& cases) {
  zip64_end(cases);
  for (const char* which : {"data/0", "data.pkl"}) zip64_fields(cases, which);
}

}  // namespace attentive::test
