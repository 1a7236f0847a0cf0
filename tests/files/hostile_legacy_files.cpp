#include "files/hostile_torch_file.h"

// Files in the format before PyTorch 1.6 that are wrong around a valid pickle.

namespace attentive::test {
namespace {

using namespace std::string_literals;

class Files {
 public:
  void add(std::string name, const std::function<void(LegacyFile&)>& change, std::vector<std::string> words) {
    auto file = legacy_of(Pickle(2, Format::Legacy).tensor().stop());
    change(file);
    files_.push_back({std::move(name), file.bytes(), std::move(words)});
  }
  std::vector<HostileFile> take() { return std::move(files_); }

 private:
  std::vector<HostileFile> files_;
};

std::string integer(int64_t value) {
  return Pickle().integer(value).stop();
}

std::string texts(const std::vector<std::string>& values) {
  Pickle pickle;
  pickle.raw("](");
  for (const auto& value : values) pickle.text(value);
  return pickle.raw("e").stop();
}

void heads(Files& cases) {
  cases.add("another magic number", [](LegacyFile& f) { f.magic = integer(1001); },
            {"a pickle that torch.save did not write"});
  cases.add("a magic number that differs by one", [](LegacyFile& f) { ++f.magic[4]; },
            {"a pickle that torch.save did not write"});
  cases.add("magic text", [](LegacyFile& f) { f.magic = Pickle().text("magic").stop(); },
            {"a pickle that torch.save did not write"});
  cases.add("a magic list", [](LegacyFile& f) { f.magic = Pickle().raw("]").stop(); },
            {"a pickle that torch.save did not write"});
  cases.add("no magic number", [](LegacyFile& f) { f.magic = ""; },
            {"a pickle that torch.save did not write"});
  for (const int64_t version : {0, 1000, 1002, -1001}) {
    cases.add("version " + std::to_string(version), [=](LegacyFile& f) { f.protocol = integer(version); },
              {"expected protocol version 1001"});
  }
  cases.add("a version of text", [](LegacyFile& f) { f.protocol = Pickle().text("1001").stop(); },
            {"expected protocol version 1001"});
  cases.add("no version", [](LegacyFile& f) { f.protocol = ""; }, {"expected protocol version 1001"});
  const auto system = [&](const char* name, const Pickle& pickle, std::vector<std::string> words) {
    cases.add(
        "system: "s + name, [&](LegacyFile& f) { f.system = pickle.stop(); }, std::move(words));
  };
  system("a list", Pickle().raw("]"), {"expected a dict of the machine, got a list"});
  system("an empty dict", Pickle().raw("}"), {"its byte order is not stated"});
  system("big-endian", Pickle().raw("}").text("little_endian").raw("\x89s"),
         {"written on a big-endian machine"});
  system("little_endian of text", Pickle().raw("}").text("little_endian").text("yes").raw("s"),
         {"expected little_endian to be a bool"});
  system("a tensor", Pickle(2, Format::Legacy).tensor(), {"a tensor where none is allowed"});
  system("os.system", Pickle().global("os", "system").text("true").call(1), {"it refers to \"os.system\""});
  system("deep", Pickle().raw("N").raw(times(10'000'000, "\x85")), {"bytes of memory (max_pickle_bytes)"});
  cases.add("no system", [](LegacyFile& f) { f.system = ""; }, {"a tensor where none is allowed"});
  cases.add("no object", [](LegacyFile& f) { f.object = ""; },
            {"expected a pickle of protocol 2 to 5, got none"});
  cases.add("no keys", [](LegacyFile& f) { f.keys = ""; },
            {"expected a pickle of protocol 2 to 5, got none"});
  cases.add("only a magic number", [](LegacyFile& f) { f = {.magic = f.magic}; },
            {"its pickle is truncated"});
}

void legacy_keys(Files& cases) {
  const auto add = [&](const char* name, std::string pickle, size_t storages,
                       std::vector<std::string> words) {
    cases.add(
        "keys: "s + name, [&](LegacyFile& f) { f.keys = pickle, f.storages.resize(storages); },
        std::move(words));
  };
  add("none", texts({}), 0, {"storage \"0\" is not in the file"});
  add("another", texts({"1"}), 1, {"does not mention storage \"1\""});
  add("one more", texts({"0", "1"}), 2, {"2 storage keys for 1 mentions"});
  add("twice", texts({"0", "0"}), 2, {"2 storage keys for 1 mentions"});
  add("a number", Pickle().raw("]K\0a"s).stop(), 1, {"expected a storage key, got an int"});
  add("a tensor", Pickle(2, Format::Legacy).raw("]").tensor().raw("a").stop(), 1,
      {"a tensor where none is allowed"});
  add("a dict", Pickle().raw("}").text("0").raw("Ns").stop(), 1,
      {"expected a list of storage keys, got a dict"});
  add("None", Pickle().raw("N").stop(), 1, {"expected a list of storage keys, got None"});
  add("ten million", Pickle().raw("](" + times(10'000'000, "N") + "e").stop(), 1,
      {"bytes of memory (max_pickle_bytes)"});
  cases.add("keys: twice, and two mentions",
            [](LegacyFile& f) {
              f.object = Pickle(2, Format::Legacy).tensor().tensor().raw("\x86").stop();
              f.keys = texts({"0", "0"});
              f.storages.resize(2);
            },
            {"storage \"0\" follows twice"});
}

void legacy_storages(Files& cases) {
  const auto add = [&](const char* name, int64_t count, const std::string& bytes) {
    cases.add("storage: "s + name,
              [&](LegacyFile& f) {
                f.storages[0] = {count, bytes};
              },
              {"storage \"0\" is said to have 6 elements, but " + std::to_string(count) + " follow in " +
               std::to_string(bytes.size()) + " bytes"});
  };
  const auto floats = six_floats();
  add("a count of -1", -1, floats);
  add("a count of 0", 0, floats);
  add("a count of 5", 5, floats);
  add("a count of 7", 7, floats);
  add("a count in bytes", 24, floats);
  add("a count of 2^62", kHuge, floats);
  add("a count of 2^63 - 1", INT64_MAX, floats);
  add("a count of -2^63", INT64_MIN, floats);
  add("a byte less", 6, floats.substr(1));
  add("no bytes", 6, "");
  cases.add("storage: a byte more", [&](LegacyFile& f) { f.storages[0].bytes += "x"; },
            {"1 bytes after its last storage"});
  cases.add("storage: 2^62 elements by both counts, whose bytes overflow to 0",
            [](LegacyFile& f) {
              f.object = Pickle(2, Format::Legacy).tensor({.storage = {.numel = kHuge}}).stop();
              f.storages[0].count = kHuge;
            },
            {"but 4611686018427387904 follow in 24 bytes"});
  cases.add("half a count", [](LegacyFile& f) { f.storages.clear(), f.suffix = "\6\0\0"s; },
            {"lie beyond its"});
  cases.add("no storages", [](LegacyFile& f) { f.storages.clear(); }, {"lie beyond its"});
  cases.add("bytes behind the last storage", [](LegacyFile& f) { f.suffix = "x"; },
            {"1 bytes after its last storage"});
  cases.add("a file behind the file", [](LegacyFile& f) { f.suffix = f.bytes(); },
            {"bytes after its last storage"});
  cases.add("nine million values and no data",
            [](LegacyFile& f) {
              f.object = nine_million_values(Pickle(2, Format::Legacy)).tensor().raw("t").stop();
              f.storages.clear();
            },
            {"lie beyond its"});
}

void views(Files& cases) {
  const auto add = [&](const char* name, const Pickle& view, std::vector<std::string> words) {
    cases.add(
        "view: "s + name,
        [&](LegacyFile& f) {
          Pickle pickle;
          pickle.global("torch._utils", "_rebuild_tensor_v2").raw("(").raw("(").text("storage");
          pickle.global("torch", "FloatStorage").text("0").text("cpu").integer(6).raw(view.bytes()).raw("tQ");
          f.object = pickle.integer(0).tuple({2, 3}).tuple({3, 1}).raw("\x89").hooks().raw("tR").stop();
        },
        std::move(words));
  };
  add("a number", Pickle(-1).integer(0), {"expected the view of a storage to be a tuple"});
  add("of nothing", Pickle(-1).raw(")"), {"expected 3 values of a storage's view, got 0"});
  add("at -1", Pickle(-1).text("1").integer(-1).integer(6).raw("\x87"),
      {"the offset of a storage's view is negative"});
  add("of -1", Pickle(-1).text("1").integer(0).integer(-1).raw("\x87"),
      {"the size of a storage's view is negative"});
  add("behind the end", Pickle(-1).text("1").integer(7).integer(0).raw("\x87"),
      {"a view of 0 at 7 leaves its storage of 6"});
  add("whose key is a number", Pickle(-1).integer(1).integer(0).integer(6).raw("\x87"),
      {"expected the key of a storage's view to be a str"});
  add("too long", Pickle(-1).text("1").integer(3).integer(6).raw("\x87"),
      {"a view of 6 at 3 leaves its storage of 6"});
}

// A view of a storage of bytes, which torch.save does not write: the number of elements would depend on the
// dtype.
void untyped_views(Files& cases) {
  const auto add = [&](const char* name, const char* dtype, int64_t offset, int64_t begin, int64_t count,
                       int64_t size) {
    cases.add("untyped view: "s + name,
              [&](LegacyFile& f) {
                Pickle pickle;
                pickle.global("torch._utils", "_rebuild_tensor_v3").raw("((").text("storage");
                pickle.global("torch.storage", "UntypedStorage")
                    .text("0")
                    .text("cpu")
                    .integer(24)
                    .raw("(")
                    .text("1");
                pickle.integer(begin).integer(count).raw("ttQ").integer(offset).tuple({size}).tuple({1}).raw(
                    "\x89");
                f.object = pickle.hooks().global("torch", dtype).raw("tR").stop();
                f.storages[0].count = 24;
              },
              {"a view of an untyped storage"});
  };
  add("more elements than bytes allow", "float64", 0, 0, 24, 24);
  add("one element too many", "float64", 0, 0, 24, 4);
  add("one element too many behind the begin", "float64", 0, 8, 16, 3);
  add("the begin within an element", "float64", 0, 4, 20, 1);
  add("offset too far", "float64", 3, 0, 24, 1);
}

}  // namespace

std::vector<HostileFile> hostile_legacy_files() {
  Files cases;
  heads(cases);
  legacy_keys(cases);
  legacy_storages(cases);
  views(cases);
  untyped_views(cases);
  return cases.take();
}

}  // namespace attentive::test
