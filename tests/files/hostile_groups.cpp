#include "files/hostile_torch_file.h"

namespace attentive::test {

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
