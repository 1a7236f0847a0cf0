#include "io/hostile_torch_file.h"

// The format before PyTorch 1.6 around a good pickle.

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
  cases.add("another magic number", [](LegacyFile& f) { f.magic = integer(1001); }, {"torch.save"});
  cases.add("magic text", [](LegacyFile& f) { f.magic = Pickle().text("magic").stop(); }, {"torch.save"});
  cases.add("a magic list", [](LegacyFile& f) { f.magic = Pickle().raw("]").stop(); }, {"torch.save"});
  cases.add("no magic number", [](LegacyFile& f) { f.magic = ""; }, {"torch.save"});
  for (const int64_t version : {0, 1000, 1002, -1001}) {
    cases.add("version " + std::to_string(version), [=](LegacyFile& f) { f.protocol = integer(version); },
              {"version"});
  }
  cases.add("a version of text", [](LegacyFile& f) { f.protocol = Pickle().text("1001").stop(); },
            {"version"});
  cases.add("no version", [](LegacyFile& f) { f.protocol = ""; }, {"version"});
  const auto system = [&](const char* name, const Pickle& pickle, std::vector<std::string> words) {
    cases.add(
        "system: "s + name, [&](LegacyFile& f) { f.system = pickle.stop(); }, std::move(words));
  };
  system("a list", Pickle().raw("]"), {});
  system("an empty dict", Pickle().raw("}"), {"byte order"});
  system("big-endian", Pickle().raw("}").text("little_endian").raw("\x89s"), {"big"});
  system("little_endian of text", Pickle().raw("}").text("little_endian").text("yes").raw("s"),
         {"little_endian"});
  system("a tensor", Pickle(2, Format::Legacy).tensor(), {});
  system("os.system", Pickle().global("os", "system").text("true").call(1), {"os.system"});
  system("deep", Pickle().raw("N").raw(times(10'000'000, "\x85")), {});
  cases.add("no system", [](LegacyFile& f) { f.system = ""; }, {});
  cases.add("no object", [](LegacyFile& f) { f.object = ""; }, {});
  cases.add("no keys", [](LegacyFile& f) { f.keys = ""; }, {});
  cases.add("only a magic number", [](LegacyFile& f) { f = {.magic = f.magic}; }, {});
}

void keys(Files& cases) {
  const auto add = [&](const char* name, std::string pickle, size_t storages,
                       std::vector<std::string> words) {
    cases.add(
        "keys: "s + name, [&](LegacyFile& f) { f.keys = pickle, f.storages.resize(storages); },
        std::move(words));
  };
  add("none", texts({}), 0, {});
  add("another", texts({"1"}), 1, {"storage"});
  add("one more", texts({"0", "1"}), 2, {"storage"});
  add("twice", texts({"0", "0"}), 2, {"storage"});
  add("a number", Pickle().raw("]K\0a"s).stop(), 1, {});
  add("a tensor", Pickle(2, Format::Legacy).raw("]").tensor().raw("a").stop(), 1, {});
  add("a dict", Pickle().raw("}").text("0").raw("Ns").stop(), 1, {});
  add("None", Pickle().raw("N").stop(), 1, {});
  add("ten million", Pickle().raw("](" + times(10'000'000, "N") + "e").stop(), 1, {});
}

void storages(Files& cases) {
  const auto add = [&](const char* name, int64_t count, const std::string& bytes,
                       std::vector<std::string> words) {
    cases.add(
        "storage: "s + name,
        [&](LegacyFile& f) {
          f.storages[0] = {count, bytes};
        },
        std::move(words));
  };
  const auto floats = six_floats();
  add("a count of -1", -1, floats, {"storage"});
  add("a count of 0", 0, floats, {"storage"});
  add("a count of 5", 5, floats, {"storage"});
  add("a count of 7", 7, floats, {"storage"});
  add("a count in bytes", 24, floats, {"storage"});
  add("a count of 2^62", int64_t{1} << 62, floats, {"storage"});
  add("a count of 2^63 - 1", INT64_MAX, floats, {"storage"});
  add("a count of -2^63", INT64_MIN, floats, {"storage"});
  add("a byte less", 6, floats.substr(1), {});
  add("a byte more", 6, floats + "x", {});
  add("no bytes", 6, "", {});
  cases.add("half a count", [](LegacyFile& f) { f.storages.clear(), f.suffix = "\6\0\0"s; }, {});
  cases.add("no storages", [](LegacyFile& f) { f.storages.clear(); }, {});
  cases.add("bytes behind the last storage", [](LegacyFile& f) { f.suffix = "x"; }, {});
  cases.add("a file behind the file", [](LegacyFile& f) { f.suffix = f.bytes(); }, {});
  cases.add("nine million values and no data",
            [](LegacyFile& f) {
              f.object = nine_million_values(Pickle(2, Format::Legacy)).tensor().raw("t").stop();
              f.storages.clear();
            },
            {});
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
  add("a number", Pickle(-1).integer(0), {});
  add("of nothing", Pickle(-1).raw(")"), {});
  add("at -1", Pickle(-1).text("1").integer(-1).integer(6).raw("\x87"), {});
  add("too long", Pickle(-1).text("1").integer(3).integer(6).raw("\x87"), {});
}

// A storage of bytes, and a view of all of them: how many elements of a dtype fit depends on the dtype.
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
              {});
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
  keys(cases);
  storages(cases);
  views(cases);
  untyped_views(cases);
  return cases.take();
}

}  // namespace attentive::test
