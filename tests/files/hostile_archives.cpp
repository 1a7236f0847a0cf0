#include "files/hostile_torch_file.h"

// Zip archives that are damaged, ambiguous or larger than they look.

namespace attentive::test {
namespace {

using namespace std::string_literals;

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

}  // namespace attentive::test
