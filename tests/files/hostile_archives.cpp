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

void add_hostile_zip64(HostileArchives& cases) {
  zip64_end(cases);
  for (const char* which : {"data/0", "data.pkl"}) zip64_fields(cases, which);
}

// Zip archives that are damaged, ambiguous or larger than they look.

void no_archives(HostileArchives& cases) {
  cases.add("nothing", ""s, {"it is empty"});
  cases.add("one byte", "P"s, {"not written by torch.save"});
  cases.add("a signature", "PK\x03\x04"s, {"too few for a zip archive"});
  cases.add("only an end record", ZipFile{}, {"without records"});
  cases.add("text", "version https://git-lfs.github.com/spec/v1\n"s, {"not written by torch.save"});
  cases.add("a page", "<!DOCTYPE html><html><body>404</body></html>\n"s, {"not written by torch.save"});
  cases.add("zeros", std::string(4096, '\0'), {"not written by torch.save"});
  cases.add("gzip", "\x1f\x8b\x08\0\0\0\0\0"s + std::string(100, 'x'), {"not written by torch.save"});
  cases.add("a tar of PyTorch 0.1", "sys_info\0"s + std::string(2048, '\0'), {"not written by torch.save"});
  cases.add("a zip of something else", ZipFile{{{.name = "readme.txt", .data = "hello"}}},
            {"outside a root folder"});
}

constexpr const char* kNoEnd = "no zip end of central directory at its end";

void end_record(HostileArchives& cases) {
  const auto changed = [&](const std::string& name, const char* reason,
                           const std::function<void(ZipFile&)>& change) {
    cases.changed(name, change, {reason});
  };
  changed("bytes before the archive", "not written by torch.save",
          [](ZipFile& f) { f.unseen = "#!/bin/sh\n"; });
  changed("an archive before the archive", kElsewhere, [](ZipFile& f) { f.unseen = good_archive().bytes(); });
  changed("bytes before the first entry", "its first record does not begin at its first byte",
          [](ZipFile& f) { f.prefix = "PK\x03\x04 hidden"; });
  changed("bytes behind the archive", kNoEnd, [](ZipFile& f) { f.suffix = "x"; });
  changed("an archive behind the archive", kElsewhere, [](ZipFile& f) { f.suffix = good_archive().bytes(); });
  changed("a comment", kNoEnd, [](ZipFile& f) { f.comment = "hello"; });
  changed("an archive in the comment", kElsewhere, [](ZipFile& f) { f.comment = good_archive().bytes(); });
  changed("an end record in the comment", kElsewhere,
          [](ZipFile& f) { f.comment = "PK\x05\x06"s + std::string(18, '\0'); });
  changed("a comment longer than the file", kNoEnd, [](ZipFile& f) { f.comment_size = 100; });
  changed("a comment shorter than the rest", kNoEnd,
          [](ZipFile& f) { f.comment = "hello", f.comment_size = 2; });
  changed("two end records", kElsewhere,
          [](ZipFile& f) { f.extra_end = "PK\x05\x06"s + std::string(18, '\0'); });
  changed("another disk", kParts, [](ZipFile& f) { f.disk = 1; });
  for (const uint64_t count : {0, 1, 3, 5}) {
    const auto number = std::to_string(count);
    changed("a count of " + number, ("holds 4 records, not " + number).c_str(),
            [&](ZipFile& f) { f.count = count; });
  }
  changed("a count of 65535", "65535 records do not fit", [](ZipFile& f) { f.count = 65535; });
  changed("two counts", kParts, [](ZipFile& f) { f.count_here = 3; });
  for (const uint64_t size : {uint64_t{0}, uint64_t{46}, uint64_t{100000}, uint64_t{0xffffffff}}) {
    changed("a directory of " + std::to_string(size), kElsewhere,
            [&](ZipFile& f) { f.directory_size = size; });
  }
  const auto where = good_archive().directory();
  for (const uint64_t offset :
       {uint64_t{0}, where - 1, where + 1, where + 46, uint64_t{0x7fffffff}, uint64_t{0xffffffff}}) {
    changed("a directory at " + std::to_string(offset), kElsewhere,
            [&](ZipFile& f) { f.directory_offset = offset; });
  }
  changed("bytes before the directory", "after record \"version\" belong to nothing",
          [](ZipFile& f) { f.between = "between"; });
  changed("bytes behind the directory", kElsewhere, [](ZipFile& f) { f.extra_end = "between"; });
}

// The reason for refusing an archive in which one record's offset is wrong: the gap or overlap that the
// reader, in the order of the file, meets first.
std::string reason_beyond_the_file(std::string_view which) {
  if (which == "data.pkl") return "its first record does not begin at its first byte";
  if (which == "byteorder") return "after record \"data.pkl\" belong to nothing";
  if (which == "data/0") return "after record \"byteorder\" belong to nothing";
  return "record \"data/0\" overlaps the next one";
}

void headers(HostileArchives& cases, const std::string& which) {
  const auto add = [&](const char* name, const std::string& reason,
                       const std::function<void(ZipEntry&)>& change) {
    cases.entry(which + " " + name, which, change, {reason});
  };
  const auto record = "record \"" + which + "\"", rooted = "record \"archive/" + which + "\"";
  const auto differs = record + ": its local header differs from the central directory";
  const auto overlaps = record + " overlaps the next one";
  const auto damaged = "damaged: its CRC-32 is ";
  add("without its signature", differs, [](ZipEntry& e) { e.local_signature = "PK\1\1"; });
  add("without the directory's signature", "its central directory is damaged after record ",
      [](ZipEntry& e) { e.signature = "PK\3\4"; });
  add("under another local name", differs,
      [](ZipEntry& e) { e.local_name = std::string(e.name.size(), 'x'); });
  add("under another local name below its root", differs, [](ZipEntry& e) {
    e.local_name = e.name;
    e.local_name->back() = 'x';
  });
  add("below another local root", differs, [](ZipEntry& e) { e.local_name = 'x' + e.name.substr(1); });
  add("without a local root", differs, [](ZipEntry& e) {
    e.local_name = e.name;
    e.local_name->at(e.name.find('/')) = 'x';
  });
  add("under a longer local name", differs, [](ZipEntry& e) { e.local_name = e.name + "x"; });
  add("with another local size", differs, [](ZipEntry& e) { e.local_size = e.data.size() + 1; });
  add("with another local packed size", differs, [](ZipEntry& e) { e.local_packed = e.data.size() + 1; });
  add("with another local checksum", differs, [](ZipEntry& e) { e.local_crc = 1; });
  add("with another local method", differs, [](ZipEntry& e) { e.local_method = 8; });
  add("encrypted", rooted + " is encrypted", [](ZipEntry& e) { e.flags = 1; });
  add("encrypted in its local header", differs, [](ZipEntry& e) { e.local_flags = 1; });
  add("with another checksum", damaged, [](ZipEntry& e) { e.crc = 1; });
  add("without a checksum", damaged, [](ZipEntry& e) { e.crc = 0; });
  add("of another size than its packed one", rooted + " is stored, but in ",
      [](ZipEntry& e) { e.size = e.data.size() - 1; });
  add("packed in an unknown way", rooted + " is compressed", [](ZipEntry& e) { e.method = 99; });
  add("packed, it says", rooted + " is compressed", [](ZipEntry& e) { e.method = 8; });
  add("longer than the file", overlaps, [](ZipEntry& e) { e.size = e.packed = 1'000'000; });
  add("of 4 GiB - 2", overlaps, [](ZipEntry& e) { e.size = e.packed = 0xfffffffe; });
  add("longer into the next header", overlaps, [](ZipEntry& e) {
    e.size = e.packed = e.data.size() + 1;
    e.crc = crc32_of(e.data + "P");
  });
  add("at an offset beyond the file", reason_beyond_the_file(which),
      [](ZipEntry& e) { e.offset = 0xfffffffe; });
  add("at an offset without a header",
      which == "data.pkl" ? "its first record does not begin at its first byte"
                          : "record \"data.pkl\" overlaps the next one",
      [](ZipEntry& e) { e.offset = 5; });
  add("on another disk", kParts, [](ZipEntry& e) { e.disk = 1; });
}

void descriptors(HostileArchives& cases, const std::string& which) {
  const auto record = "record \"" + which + "\"";
  // The local header leaves CRC-32 and sizes to a descriptor with these bytes.
  const auto add = [&](const char* name, const std::string& reason,
                       const std::function<std::string(const ZipEntry&)>& descriptor) {
    cases.entry(which + " whose descriptor " + name, which,
                [&](ZipEntry& e) {
                  e.flags = 8, e.local_crc = 0, e.local_size = e.local_packed = 0;
                  e.behind = descriptor(e);
                },
                {reason});
  };
  const auto differs = record + ": its data descriptor differs from the central directory";
  const auto sized = [](const ZipEntry& e, uint64_t packed, uint64_t size) {
    return "PK\7\10"s + little(crc32_of(e.data), 4) + little(packed, 4) + little(size, 4);
  };
  add("is missing", "0 bytes after " + record + " are not a data descriptor",
      [](const ZipEntry&) { return ""s; });
  add("has another checksum", differs, [](const ZipEntry& e) {
    return "PK\7\10"s + little(1, 4) + little(e.data.size(), 4) + little(e.data.size(), 4);
  });
  add("has another size", differs, [&](const ZipEntry& e) { return sized(e, e.data.size(), 1); });
  add("has another packed size", differs, [&](const ZipEntry& e) { return sized(e, 1, e.data.size()); });
  add("has another signature", differs,
      [&](const ZipEntry& e) { return "PKxx" + sized(e, e.data.size(), e.data.size()).substr(4); });
  cases.entry(which + " with bytes behind it", which, [](ZipEntry& e) { e.behind = "hidden"; },
              {"6 bytes after " + record + " belong to nothing"});
}

void headers(HostileArchives& cases) {
  for (const char* which : {"data.pkl", "data/0", "byteorder", "version"}) {
    headers(cases, which);
    descriptors(cases, which);
  }
  const auto longer = [&](size_t length, const char* reason) {  // of the first entry's header
    auto bytes = good_archive().bytes();
    bytes.replace(length, 2, "\xff\xff");
    cases.add("a local header that is longer than the file: " + std::to_string(length), bytes, {reason});
  };
  longer(26, "record \"data.pkl\": its local header differs");  // through its name
  longer(28, "record \"data.pkl\" overlaps the next one");      // through its extra field
  auto unneeded = good_archive();
  unneeded.entries.push_back({.name = "archive/.data/serialization_id", .data = "1", .crc = 1});
  cases.add("a record that is not needed, with another checksum", unneeded,
            {"record \".data/serialization_id\" is damaged: its CRC-32"});
}

void overlaps(HostileArchives& cases) {
  cases.changed("data/0 in data.pkl's place", [](ZipFile& f) { f.entry("archive/data/0").offset = 0; },
                {"overlaps the next one"});
  cases.changed("two names for the same bytes",
                [](ZipFile& f) {
                  f.entries.push_back({.name = "archive/data/1", .data = six_floats()});
                  f.entries.back().offset = good_archive().bytes().find("archive/data/0") - 30;
                },
                {"overlaps the next one"});
  // An entry that lies inside the data of another one.
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
                {"overlaps the next one"});
  cases.changed("an entry that runs into the directory",
                [](ZipFile& f) {
                  auto& last = f.entries.back();
                  last.size = last.packed = last.data.size() + 46;
                },
                {"overlaps the next one"});
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
  extra("another root", "other/data.pkl", {"it has two root folders"});
  extra("another root without a pickle", "other/data/0", {"it has two root folders"});
  extra("no root", "data.pkl", {"outside a root folder"});
  extra("no name", "", {"has no plain name"});
  extra("an absolute name", "/archive/data/1", {"has no plain name"});
  extra("a way out", "archive/../data/1", {"has no plain name"});
  extra("a way out of data", "archive/data/../../x", {"has no plain name"});
  extra("backslashes", "archive\\data\\1", {"has no plain name"});
  extra("a NUL", "archive/data/1\0x"s, {"has no plain name"});
  extra("no UTF-8", "archive/data/\xff", {"has no plain name"});
  extra("a folder", "archive/data/", {"has no plain name"});
  extra("TorchScript", "archive/constants.pkl", {"TorchScript"});
  extra("code", "archive/code/__torch__.py", {"TorchScript"});
  const auto renamed = [&](const char* name, const char* which, std::string to,
                           std::vector<std::string> words) {
    cases.entry(
        "renamed: "s + name, which, [&](ZipEntry& e) { e.name = to; }, std::move(words));
  };
  renamed("no pickle", "data.pkl", "archive/data.txt", {"without a record \"data.pkl\""});
  renamed("a pickle elsewhere", "data.pkl", "other/data.pkl", {"it has two root folders"});
  renamed("a pickle deeper", "data.pkl", "archive/data/data.pkl", {"without a record \"data.pkl\""});
  renamed("no storage", "data/0", "archive/data/1", {"storage \"0\" is not in the archive"});
  renamed("a storage elsewhere", "data/0", "other/data/0", {"it has two root folders"});
  renamed("no version", "version", "archive/vision", {"without a record \"version\""});
  cases.add("nothing has a root",
            ZipFile{{{.name = "data.pkl", .data = Pickle().tensor().stop()},
                     {.name = "data/0", .data = six_floats()},
                     {.name = "version", .data = "3\n"}}},
            {"record \"data.pkl\" lies outside a root folder"});
}

}  // namespace

std::vector<HostileFile> hostile_archives() {
  HostileArchives cases;
  no_archives(cases);
  end_record(cases);
  add_hostile_zip64(cases);
  headers(cases);
  overlaps(cases);
  names(cases);
  return cases.take();
}

// Records whose contents are wrong, and those that are larger than they look.
namespace {

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

void HostilePickles::add(std::string name, const Pickle& pickle, std::vector<std::string> words) {
  files_.push_back({std::move(name), file_of(format_, pickle.stop()), std::move(words)});
}

void HostilePickles::add_whole(std::string name, const Pickle& pickle, std::vector<std::string> words) {
  files_.push_back({std::move(name), file_of(format_, pickle.bytes()), std::move(words)});
}

ZipFile good_archive() {
  return archive_of(Pickle().tensor().stop());
}

void HostileArchives::add(std::string name, const std::string& bytes, std::vector<std::string> words) {
  files_.push_back({std::move(name), bytes, std::move(words)});
}

void HostileArchives::add(std::string name, const ZipFile& file, std::vector<std::string> words) {
  add(std::move(name), file.bytes(), std::move(words));
}

void HostileArchives::changed(std::string name, const std::function<void(ZipFile&)>& change,
                              std::vector<std::string> words) {
  auto file = good_archive();
  change(file);
  add(std::move(name), file, std::move(words));
}

void HostileArchives::entry(std::string name, const std::string& which,
                            const std::function<void(ZipEntry&)>& change, std::vector<std::string> words) {
  changed(
      std::move(name), [&](ZipFile& file) { change(file.entry("archive/" + which)); }, std::move(words));
}

std::vector<HostileGroup> hostile_groups() {
  std::vector<HostileGroup> groups = {
      {"archives", hostile_archives}, {"records", hostile_records}, {"legacy files", hostile_legacy_files}};
  for (const auto format : {Format::Zip, Format::Legacy}) {
    const std::string where = format == Format::Zip ? " in a zip file" : " in the old format";
    groups.push_back({"opcodes" + where, [=] { return hostile_opcodes(format); }});
    groups.push_back({"sizes" + where, [=] { return hostile_sizes(format); }});
    groups.push_back({"values" + where, [=] { return hostile_values(format); }});
    groups.push_back({"tensors" + where, [=] { return hostile_tensors(format); }});
  }
  return groups;
}

}  // namespace attentive::test
