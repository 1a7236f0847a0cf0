#include "io/hostile_torch_file.h"

// Zip archives that are damaged, ambiguous or larger than they look.

namespace attentive::test {
namespace {

using namespace std::string_literals;

void no_archives(HostileArchives& cases) {
  cases.add("nothing", ""s, {"empty"});
  cases.add("one byte", "P"s, {});
  cases.add("a signature", "PK\x03\x04"s, {});
  cases.add("only an end record", ZipFile{}, {});
  cases.add("text", "version https://git-lfs.github.com/spec/v1\n"s, {});
  cases.add("a page", "<!DOCTYPE html><html><body>404</body></html>\n"s, {});
  cases.add("zeros", std::string(4096, '\0'), {});
  cases.add("gzip", "\x1f\x8b\x08\0\0\0\0\0"s + std::string(100, 'x'), {});
  cases.add("a tar of PyTorch 0.1", "sys_info\0"s + std::string(2048, '\0'), {});
  cases.add("a zip of something else", ZipFile{{{.name = "readme.txt", .data = "hello"}}}, {"root"});
}

void end_record(HostileArchives& cases) {
  cases.changed("bytes before the archive", [](ZipFile& f) { f.unseen = "#!/bin/sh\n"; }, {});
  cases.changed("an archive before the archive", [](ZipFile& f) { f.unseen = good_archive().bytes(); }, {});
  cases.changed("bytes before the first entry", [](ZipFile& f) { f.prefix = "PK\x03\x04 hidden"; }, {});
  cases.changed("bytes behind the archive", [](ZipFile& f) { f.suffix = "x"; }, {});
  cases.changed("an archive behind the archive", [](ZipFile& f) { f.suffix = good_archive().bytes(); }, {});
  cases.changed("a comment", [](ZipFile& f) { f.comment = "hello"; }, {"end of central directory"});
  cases.changed("an archive in the comment", [](ZipFile& f) { f.comment = good_archive().bytes(); }, {});
  cases.changed("an end record in the comment",
                [](ZipFile& f) { f.comment = "PK\x05\x06"s + std::string(18, '\0'); }, {});
  cases.changed("a comment longer than the file", [](ZipFile& f) { f.comment_size = 100; }, {});
  cases.changed("a comment shorter than the rest",
                [](ZipFile& f) { f.comment = "hello", f.comment_size = 2; }, {});
  cases.changed("two end records", [](ZipFile& f) { f.extra_end = "PK\x05\x06"s + std::string(18, '\0'); },
                {});
  cases.changed("another disk", [](ZipFile& f) { f.disk = 1; }, {"parts"});
  for (const uint64_t count : {0, 1, 3, 5, 65535}) {
    cases.changed("a count of " + std::to_string(count), [&](ZipFile& f) { f.count = count; }, {});
  }
  cases.changed("two counts", [](ZipFile& f) { f.count_here = 3; }, {});
  for (const uint64_t size : {uint64_t{0}, uint64_t{46}, uint64_t{100000}, uint64_t{0xffffffff}}) {
    cases.changed("a directory of " + std::to_string(size), [&](ZipFile& f) { f.directory_size = size; }, {});
  }
  const auto where = good_archive().directory();
  for (const uint64_t offset :
       {uint64_t{0}, where - 1, where + 1, where + 46, uint64_t{0x7fffffff}, uint64_t{0xffffffff}}) {
    cases.changed("a directory at " + std::to_string(offset),
                  [&](ZipFile& f) { f.directory_offset = offset; }, {});
  }
  cases.changed("bytes before the directory", [](ZipFile& f) { f.between = "between"; }, {});
  cases.changed("bytes behind the directory", [](ZipFile& f) { f.extra_end = "between"; }, {});
}

void zip64(HostileArchives& cases) {
  const auto add = [&](const char* name, const Zip64End& end, bool told = true) {
    auto file = with_zip64(good_archive(), end);
    if (told) file.count = 0xffff, file.directory_size = file.directory_offset = 0xffffffff;
    cases.add("zip64: "s + name, file, {});
  };
  add("a count of 5", {.count = 5});
  add("a count of 2^63", {.count = uint64_t{1} << 63});
  add("a count of ten million", {.count = 10'000'000});
  add("two counts", {.count_here = 3});
  add("another count than the end record's", {.count = 3}, false);
  add("a directory of 2^63", {.directory_size = uint64_t{1} << 63});
  add("a directory of another size than the end record's", {.directory_size = 46}, false);
  add("a directory at 2^63", {.directory_offset = uint64_t{1} << 63});
  add("a directory at 2^64 - 1", {.directory_offset = ~uint64_t{0}});
  add("a directory elsewhere than the end record says", {.directory_offset = 0}, false);
  add("a record of 2^63", {.record_size = uint64_t{1} << 63});
  add("a record of 43", {.record_size = 43});
  add("a record at 0", {.record_offset = 0});
  add("a record at 2^64 - 1", {.record_offset = ~uint64_t{0}});
  add("no record", {.signature = "PKxx"});
  add("no locator", {.locator_signature = "PKxx"});
  add("two disks", {.disks = 2});
  for (const char* which : {"data/0", "data.pkl"}) {
    const auto wide = [&](const char* name, std::string extra, bool size, bool packed, bool offset) {
      cases.entry("zip64: "s + which + name, which,
                  [&](ZipEntry& e) {
                    e.extra = extra;
                    if (size) e.size = 0xffffffff;
                    if (packed) e.packed = 0xffffffff;
                    if (offset) e.offset = 0xffffffff;
                  },
                  {});
    };
    const auto field = [](std::initializer_list<uint64_t> values) {
      std::string bytes = little(1, 2) + little(8 * values.size(), 2);
      for (const auto value : values) bytes += little(value, 8);
      return bytes;
    };
    wide(" of 4 GiB", "", true, true, false);
    wide(" at 4 GiB", "", false, false, true);
    wide(" of 2^63", field({uint64_t{1} << 63, uint64_t{1} << 63}), true, true, false);
    wide(" of 2^64 - 1", field({~uint64_t{0}, ~uint64_t{0}}), true, true, false);
    wide(" at 2^64 - 1", field({~uint64_t{0}}), false, false, true);
    wide(" at 2^63", field({uint64_t{1} << 63}), false, false, true);
    wide(" with half a field", field({24, 24}).substr(0, 12), true, true, false);
    wide(" with a field that claims more", little(1, 2) + little(64, 2) + little(24, 8), true, true, false);
  }
}

void headers(HostileArchives& cases) {
  for (const char* which : {"data.pkl", "data/0", "byteorder", "version"}) {
    const auto add = [&](const char* name, const std::function<void(ZipEntry&)>& change) {
      cases.entry(which + " "s + name, which, change, {which});
    };
    cases.entry(which + " without its signature"s, which, [](ZipEntry& e) { e.local_signature = "PK\1\1"; },
                {});
    cases.entry(which + " without the directory's signature"s, which,
                [](ZipEntry& e) { e.signature = "PK\3\4"; }, {});
    add("under another local name", [](ZipEntry& e) { e.local_name = std::string(e.name.size(), 'x'); });
    add("under a longer local name", [](ZipEntry& e) { e.local_name = e.name + "x"; });
    add("with another local size", [](ZipEntry& e) { e.local_size = e.data.size() + 1; });
    add("with another local packed size", [](ZipEntry& e) { e.local_packed = e.data.size() + 1; });
    add("with another local checksum", [](ZipEntry& e) { e.local_crc = 1; });
    add("with another local method", [](ZipEntry& e) { e.local_method = 8; });
    add("encrypted", [](ZipEntry& e) { e.flags = 1; });
    add("encrypted in its local header", [](ZipEntry& e) { e.local_flags = 1; });
    cases.entry(which + " with another checksum"s, which, [](ZipEntry& e) { e.crc = 1; }, {"CRC-32"});
    cases.entry(which + " without a checksum"s, which, [](ZipEntry& e) { e.crc = 0; }, {"CRC-32"});
    add("of another size than its packed one", [](ZipEntry& e) { e.size = e.data.size() - 1; });
    add("packed in an unknown way", [](ZipEntry& e) { e.method = 99; });
    add("packed, it says", [](ZipEntry& e) { e.method = 8; });
    add("longer than the file", [](ZipEntry& e) { e.size = e.packed = 1'000'000; });
    add("of 4 GiB - 2", [](ZipEntry& e) { e.size = e.packed = 0xfffffffe; });
    add("longer into the next header", [](ZipEntry& e) {
      e.size = e.packed = e.data.size() + 1;
      e.crc = crc32_of(e.data + "P");
    });
    cases.entry(which + " at an offset beyond the file"s, which, [](ZipEntry& e) { e.offset = 0xfffffffe; },
                {});
    cases.entry(which + " at an offset without a header"s, which, [](ZipEntry& e) { e.offset = 5; }, {});
    cases.entry(which + " on another disk"s, which, [](ZipEntry& e) { e.disk = 1; }, {"parts"});
    add("whose descriptor is missing",
        [](ZipEntry& e) { e.flags = 8, e.local_crc = 0, e.local_size = e.local_packed = 0; });
    add("whose descriptor has another checksum", [](ZipEntry& e) {
      e.flags = 8, e.local_crc = 0, e.local_size = e.local_packed = 0;
      e.behind = "PK\7\10"s + little(1, 4) + little(e.data.size(), 4) + little(e.data.size(), 4);
    });
    add("whose descriptor has another size", [](ZipEntry& e) {
      e.flags = 8, e.local_crc = 0, e.local_size = e.local_packed = 0;
      e.behind = "PK\7\10"s + little(crc32_of(e.data), 4) + little(1, 4) + little(1, 4);
    });
    add("with bytes behind it", [](ZipEntry& e) { e.behind = "hidden"; });
  }
  for (const size_t length : {26, 28}) {  // of the first entry's name, and of its extra field
    auto bytes = good_archive().bytes();
    bytes.replace(length, 2, "\xff\xff");
    cases.add("a local header that is longer than the file: " + std::to_string(length), bytes, {"data.pkl"});
  }
}

void overlaps(HostileArchives& cases) {
  cases.changed("data/0 in data.pkl's place", [](ZipFile& f) { f.entry("archive/data/0").offset = 0; }, {});
  cases.changed("two names for the same bytes",
                [](ZipFile& f) {
                  f.entries.push_back({.name = "archive/data/1", .data = six_floats()});
                  f.entries.back().offset = good_archive().bytes().find("archive/data/0") - 30;
                },
                {});
  // An entry that lies within the data of another.
  cases.changed("an entry within another",
                [](ZipFile& f) {
                  const auto inner = ZipFile{{{.name = "archive/data/1", .data = six_floats()}}}.bytes();
                  auto& outer = f.entry("archive/data/0");
                  const auto start =
                      std::string(good_archive().bytes()).find("archive/data/0") + outer.name.size();
                  outer.data = inner;
                  f.entries.push_back({.name = "archive/data/1",
                                       .data = "",
                                       .crc = crc32_of(six_floats()),
                                       .size = 24,
                                       .packed = 24,
                                       .offset = start});
                },
                {});
  cases.changed("an entry that runs into the directory",
                [](ZipFile& f) {
                  auto& last = f.entries.back();
                  last.size = last.packed = last.data.size() + 46;
                },
                {});
}

void names(HostileArchives& cases) {
  const auto extra = [&](const char* name, std::string entry, std::vector<std::string> words) {
    cases.changed(
        "entry: "s + name, [&](ZipFile& f) { f.entries.push_back({.name = entry, .data = "3\n"}); },
        std::move(words));
  };
  extra("data.pkl twice", "archive/data.pkl", {"twice"});
  extra("data/0 twice", "archive/data/0", {"twice"});
  extra("version twice", "archive/version", {"twice"});
  extra("byteorder twice", "archive/byteorder", {"twice"});
  extra("another root", "other/data.pkl", {"root"});
  extra("another root without a pickle", "other/data/0", {});
  extra("no root", "data.pkl", {});
  extra("no name", "", {});
  extra("an absolute name", "/archive/data/1", {});
  extra("a way out", "archive/../data/1", {});
  extra("a way out of data", "archive/data/../../x", {});
  extra("backslashes", "archive\\data\\1", {});
  extra("a NUL", "archive/data/1\0x"s, {});
  extra("no UTF-8", "archive/data/\xff", {});
  extra("a folder", "archive/data/", {});
  extra("TorchScript", "archive/constants.pkl", {"TorchScript"});
  extra("code", "archive/code/__torch__.py", {"TorchScript"});
  const auto renamed = [&](const char* name, const char* which, std::string to,
                           std::vector<std::string> words) {
    cases.entry(
        "renamed: "s + name, which, [&](ZipEntry& e) { e.name = to; }, std::move(words));
  };
  renamed("no pickle", "data.pkl", "archive/data.txt", {"data.pkl"});
  renamed("a pickle elsewhere", "data.pkl", "other/data.pkl", {});
  renamed("a pickle deeper", "data.pkl", "archive/data/data.pkl", {"data.pkl"});
  renamed("no storage", "data/0", "archive/data/1", {"storage \"0\""});
  renamed("a storage elsewhere", "data/0", "other/data/0", {});
  renamed("no version", "version", "archive/vision", {"version"});
  cases.add("nothing has a root",
            ZipFile{{{.name = "data.pkl", .data = Pickle().tensor().stop()},
                     {.name = "data/0", .data = six_floats()},
                     {.name = "version", .data = "3\n"}}},
            {});
}

}  // namespace

std::vector<HostileFile> hostile_archives() {
  HostileArchives cases;
  no_archives(cases);
  end_record(cases);
  zip64(cases);
  headers(cases);
  overlaps(cases);
  names(cases);
  return cases.take();
}

}  // namespace attentive::test
