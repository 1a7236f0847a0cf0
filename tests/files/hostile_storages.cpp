#include "files/hostile_torch_file.h"

// Storages that are missing or differ from their description, and persistent ids of other things.

namespace attentive::test {
namespace {

using namespace std::string_literals;

void storages(HostilePickles& cases) {
  const auto add = [&](const char* name, const StorageOf& storage, std::vector<std::string> words) {
    cases.add(name, cases.pickle().tensor({.storage = storage, .sizes = {1}, .strides = {1}}),
              std::move(words));
  };
  const auto numel = [&](const char* name, const StorageOf& storage, int64_t size, int64_t there) {
    const auto said = "storage \"0\" is said to have " + std::to_string(storage.numel) + " elements";
    add(name, storage,
        {cases.either(said + " of " + std::to_string(size) + " bytes, but has 24 bytes",
                      said + ", but " + std::to_string(there) + " follow in 24 bytes")});
  };
  numel("numel of one more than the file holds", {.numel = 7}, 4, 6);
  numel("numel of one less than the file holds", {.numel = 5}, 4, 6);
  numel("numel 2^62, whose bytes overflow to 0", {.numel = kHuge}, 4, 6);
  numel("numel 2^63 - 1", {.numel = INT64_MAX}, 4, 6);
  numel("another type than the bytes", {.type = "DoubleStorage"}, 8, 3);
  add("numel -1", {.numel = -1}, {"the size of a storage is negative: -1"});
  const std::string unmentioned = "its description does not mention storage \"0\"";
  for (const char* key : {"../0", "0/../0", "/0", "0/", "..\\0"}) {
    add(("storage '" + std::string(key) + "'").c_str(), {.key = key},
        {cases.either("holds a separator", unmentioned)});
  }
  const auto missing = [&](const std::string& name, const std::string& key) {
    add(("storage " + name).c_str(), {.key = key}, {cases.either("is not in the archive", unmentioned)});
  };
  for (const std::string key : {"1", "00", "", "-1", ".", "..", "0\n"}) missing("'" + key + "'", key);
  missing("of NUL", "0\0"s);
  missing("of a long name", times(1'000'000, "0"));
  add("a storage of no UTF-8", {.key = "\xff"}, {"a string that is not UTF-8"});
  add("a type that is none", {.type = "Tensor"}, {"a storage of a class that is not a storage class"});
  add("a type that torch lacks", {.type = "StringStorage"}, {"torch.StringStorage"});
  add("a type of another module", {.module = "os"}, {"os.FloatStorage"});
  add("a quantized type", {.type = "QInt8Storage", .numel = 24},
      {"a quantized storage, \"torch.QInt8Storage\""});
  add("an untyped storage where a type belongs",
      {.type = "UntypedStorage", .module = "torch.storage", .numel = 24},
      {"a tensor of an untyped storage lacks its dtype"});
  const auto two = [&](const char* name, const StorageOf& first, const StorageOf& second,
                       const char* reason) {
    const auto tensor = [](const StorageOf& storage) {
      return TensorOf{.storage = storage, .sizes = {1}, .strides = {1}};
    };
    cases.add(name, cases.pickle().tensor(tensor(first)).tensor(tensor(second)).raw("\x86"), {reason});
  };
  const char* dtypes = "storage \"0\" is said to be of dtype float32 and of dtype int32";
  two("one storage of two dtypes", {}, {.type = "IntStorage"}, dtypes);
  two("one storage of two dtypes and as many bytes", {}, {.type = "DoubleStorage", .numel = 3},
      "storage \"0\" is said to be of dtype float32 and of dtype float64");
  two("one storage of two lengths", {}, {.numel = 5}, "5 elements of 4 bytes, but has 24 bytes");
  two("one storage, and empty", {}, {.numel = 0}, "0 elements of 4 bytes, but has 24 bytes");
  cases.add(
      "bools other than 0 and 1",
      cases.pickle().tensor({.storage = {.type = "BoolStorage", .numel = 24}, .sizes = {24}, .strides = {1}}),
      {"storage \"0\" of a bool tensor holds a byte other than 0 and 1"});
}

void persistent_ids(HostilePickles& cases) {
  const auto add = [&](const char* name, const Pickle& id, const char* word) {
    cases.add(name, cases.pickle().raw(id.bytes()).raw("Q"), {word});
  };
  const auto start = [&] { return Pickle(-1, cases.pickle().format()); };
  const auto id = [&](const Pickle& what, const Pickle& type, const Pickle& key, const Pickle& location,
                      const Pickle& numel) {
    auto pickle = start().raw("(").raw(what.bytes()).raw(type.bytes()).raw(key.bytes()).raw(location.bytes());
    return pickle.raw(numel.bytes()).raw(cases.pickle().format() == Format::Legacy ? "Nt" : "t");
  };
  const auto word = start().text("storage"), type = start().global("torch", "FloatStorage"),
             key = start().text("0"), cpu = start().text("cpu"), six = start().integer(6);
  const auto described = "expected a storage to be described by " + cases.either("5", "6") + " values, got ";
  add("an id that is text", start().text("storage"), "expected a persistent id to be a tuple, got a str");
  add("an id that is a number", start().integer(0), "expected a persistent id to be a tuple, got an int");
  add("an id that is a list", start().raw("]"), "expected a persistent id to be a tuple, got a list");
  add("an id of nothing", start().raw(")"), "an empty persistent id");
  add("an id of one", start().text("storage").raw("\x85"), (described + "1").c_str());
  add("an id of four",
      start().raw("(").raw(word.bytes()).raw(type.bytes()).raw(key.bytes()).raw(cpu.bytes()).raw("t"),
      (described + "4").c_str());
  add("an id of seven", start().raw("(").raw(word.bytes()).raw(type.bytes()).raw("NNNNNt"),
      (described + "7").c_str());
  add("an id of a module", id(start().text("module"), type, key, cpu, six),
      "a persistent id of type \"module\": only storages are read");
  add("an id whose word is a number", id(six, type, key, cpu, six),
      "expected the type of a persistent id to be a str, got an int");
  add("an id whose type is text", id(word, start().text("FloatStorage"), key, cpu, six),
      "expected the class of a storage to be a class or function, got a str");
  add("an id whose type is a dtype", id(word, start().global("torch", "float32"), key, cpu, six),
      "expected the class of a storage to be a class or function, got a dtype");
  add("an id whose key is a number", id(word, type, start().integer(0), cpu, six),
      "expected the key of a storage to be a str, got an int");
  add("an id whose location is a number", id(word, type, key, six, six),
      "expected the location of a storage to be a str, got an int");
  add("an id whose numel is text", id(word, type, key, cpu, start().text("6")),
      "expected the size of a storage to be an int, got a str");
  add("an id whose numel is a float", id(word, type, key, cpu, start().floating(6)),
      "expected the size of a storage to be an int, got a float");
  add("an id whose numel is True", id(word, type, key, cpu, start().raw("\x88")),
      "expected the size of a storage to be an int, got a bool");
}

}  // namespace

void add_hostile_storages(HostilePickles& cases) {
  storages(cases);
  persistent_ids(cases);
}

}  // namespace attentive::test
