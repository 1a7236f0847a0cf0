#include "io/hostile_torch_file.h"

// Tensors that would read what is not theirs, storages that are not there, and rebuild functions with other
// arguments.

namespace attentive::test {
namespace {

using namespace std::string_literals;

constexpr int64_t kHuge = int64_t{1} << 62;

void geometry(HostilePickles& cases) {
  const auto add = [&](const char* name, const TensorOf& tensor, std::vector<std::string> words) {
    cases.add(name, cases.pickle().tensor(tensor), std::move(words));
  };
  const auto sized = [](std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    return TensorOf{.sizes = std::move(sizes), .strides = std::move(strides)};
  };
  add("offset -4", {.offset = -4}, {"offset"});
  add("offset -1 of an empty tensor", {.offset = -1, .sizes = {0}, .strides = {1}}, {"offset"});
  add("offset 1 too far", {.offset = 1}, {"storage"});
  add("offset 2^62", {.offset = kHuge}, {});
  add("offset 2^63 - 1", {.offset = INT64_MAX, .sizes = {}, .strides = {}}, {});
  add("size -1", sized({-1, 3}, {3, 1}), {"size"});
  add("size -1 beside 0", sized({-1, 0}, {3, 1}), {"size"});
  add("size 2^62", sized({kHuge}, {1}), {});
  add("elements overflow to 0", sized({int64_t{1} << 32, int64_t{1} << 32}, {1, 1}), {});
  add("elements overflow, stride 0", sized({kHuge, 2, 2}, {0, 0, 0}), {});
  add("bytes overflow, stride 0", sized({kHuge}, {0}), {});
  add("elements overflow beside 0", sized({0, kHuge, kHuge}, {1, 1, 1}), {});
  add("elements overflow before 0", sized({kHuge, kHuge, 0}, {1, 1, 1}), {});
  add("stride -1", sized({2}, {-1}), {"stride"});
  add("stride -1 of one element", sized({1}, {-1}), {"stride"});
  add("stride 2^62", sized({3}, {kHuge}), {});
  add("stride 2^63 - 1", sized({2, 2}, {INT64_MAX, INT64_MAX}), {});
  add("stride too far", sized({2, 3}, {4, 1}), {"storage"});
  add("more strides than sizes", sized({2, 3}, {3, 1, 1}), {"stride"});
  add("fewer strides than sizes", sized({2, 3}, {1}), {"stride"});
  add("rank 65", sized(std::vector<int64_t>(65, 1), std::vector<int64_t>(65, 1)), {"64"});
  add("rank 100,000", sized(std::vector<int64_t>(100'000, 1), std::vector<int64_t>(100'000, 1)), {"64"});
  add("integers that require a gradient", {.storage = {.type = "IntStorage"}, .requires_grad = true},
      {"gradient"});
  add("bools that require a gradient",
      {.storage = {.type = "BoolStorage", .numel = 24}, .sizes = {1}, .strides = {1}, .requires_grad = true},
      {});
}

// A tensor whose arguments, between the function and the hooks, are these.
Pickle rebuilt(const Pickle& arguments, const char* function = "_rebuild_tensor_v2") {
  auto pickle =
      Pickle(2, arguments.format()).global("torch._utils", function).raw("(").raw(arguments.bytes());
  return pickle.hooks().raw("tR");
}

void arguments(HostilePickles& cases) {
  const auto start = [&] { return Pickle(-1, cases.pickle().format()); };
  const auto good = [&] { return start().storage({}); };
  cases.add("offset as text", rebuilt(good().text("0").tuple({6}).tuple({1}).raw("\x89")), {"offset"});
  cases.add("offset as a float", rebuilt(good().floating(0).tuple({6}).tuple({1}).raw("\x89")), {"offset"});
  cases.add("offset of 2^64",
            rebuilt(good().counted('\x8a', 1, 9, "\0\0\0\0\0\0\0\0\1"s).tuple({6}).tuple({1}).raw("\x89")),
            {"offset"});
  cases.add("sizes as text", rebuilt(good().integer(0).text("6").tuple({1}).raw("\x89")), {"size"});
  cases.add("size as a float", rebuilt(good().integer(0).floating(6).raw("\x85").tuple({1}).raw("\x89")),
            {"size"});
  cases.add(
      "size of 2^64",
      rebuilt(
          good().integer(0).counted('\x8a', 1, 9, "\0\0\0\0\0\0\0\0\1"s).raw("\x85").tuple({1}).raw("\x89")),
      {"size"});
  cases.add("strides as None", rebuilt(good().integer(0).tuple({6}).raw("N\x89")), {"stride"});
  cases.add("requires_grad as 1", rebuilt(good().integer(0).tuple({6}).tuple({1}).integer(1)),
            {"requires_grad"});
  cases.add("no storage", rebuilt(start().raw("N").integer(0).tuple({6}).tuple({1}).raw("\x89")),
            {"storage"});
  cases.add("a tensor for a storage", rebuilt(start().tensor().integer(0).tuple({6}).tuple({1}).raw("\x89")),
            {"storage"});
  cases.add("text for a storage", rebuilt(start().text("0").integer(0).tuple({6}).tuple({1}).raw("\x89")),
            {"storage"});
  cases.add("too few arguments", rebuilt(good().integer(0)), {"arguments"});
  cases.add("no arguments", cases.pickle().global("torch._utils", "_rebuild_tensor_v2").raw(")R"),
            {"arguments"});
  const auto all = [&] { return good().integer(0).tuple({6}).tuple({1}).raw("\x89"); };
  cases.add("too many arguments", rebuilt(all().raw("NNN")), {"arguments"});
  cases.add("hooks", rebuilt(all().raw("}").text("hook").raw("Ns")), {});
  const auto with_metadata = [&](const Pickle& metadata, const StorageOf& storage = {}) {
    auto pickle = cases.pickle().global("torch._utils", "_rebuild_tensor_v2").raw("(").storage(storage);
    return pickle.integer(0).tuple({2}).tuple({1}).raw("\x89").hooks().raw(metadata.bytes()).raw("tR");
  };
  cases.add("metadata as a list", with_metadata(start().raw("]")), {});
  cases.add("unknown metadata", with_metadata(start().raw("}").text("zerotensor").raw("\x88s")),
            {"zerotensor"});
  cases.add("a conjugated real tensor", with_metadata(start().raw("}").text("conj").raw("\x88s")), {"conj"});
  cases.add("conj as text",
            with_metadata(start().raw("}").text("conj").text("yes").raw("s"),
                          {.type = "ComplexFloatStorage", .numel = 3}),
            {"metadata"});
  cases.add("negated integers", with_metadata(start().raw("}").text("neg").text("yes").raw("s")),
            {"metadata"});
}

void storages(HostilePickles& cases) {
  const auto add = [&](const char* name, const StorageOf& storage, std::vector<std::string> words) {
    cases.add(name, cases.pickle().tensor({.storage = storage, .sizes = {1}, .strides = {1}}),
              std::move(words));
  };
  add("numel of one more than the file holds", {.numel = 7}, {});
  add("numel of one less than the file holds", {.numel = 5}, {});
  add("numel -1", {.numel = -1}, {});
  add("numel 2^62, whose bytes overflow to 0", {.numel = kHuge}, {});
  add("numel 2^63 - 1", {.numel = INT64_MAX}, {});
  add("another type than the bytes", {.type = "DoubleStorage"}, {});
  for (const char* key : {"1", "00", "", "-1", "../0", "0/../0", "/0", "0/", ".", "..", "..\\0", "0\n"}) {
    add(("storage '" + std::string(key) + "'").c_str(), {.key = key}, {});
  }
  add("a storage of NUL", {.key = "0\0"s}, {});
  add("a storage of no UTF-8", {.key = "\xff"}, {"UTF-8"});
  add("a storage of a long name", {.key = times(1'000'000, "0")}, {});
  add("a type that is none", {.type = "Tensor"}, {"storage"});
  add("a type that torch lacks", {.type = "StringStorage"}, {"torch.StringStorage"});
  add("a type of another module", {.module = "os"}, {"os.FloatStorage"});
  add("a quantized type", {.type = "QInt8Storage", .numel = 24}, {"quantized"});
  add("an untyped storage where a type belongs",
      {.type = "UntypedStorage", .module = "torch.storage", .numel = 24}, {});
  const auto two = [&](const char* name, const StorageOf& first, const StorageOf& second) {
    const auto tensor = [](const StorageOf& storage) {
      return TensorOf{.storage = storage, .sizes = {1}, .strides = {1}};
    };
    cases.add(name, cases.pickle().tensor(tensor(first)).tensor(tensor(second)).raw("\x86"), {"storage"});
  };
  two("one storage of two dtypes", {}, {.type = "IntStorage"});
  two("one storage of two dtypes and as many bytes", {}, {.type = "DoubleStorage", .numel = 3});
  two("one storage of two lengths", {}, {.numel = 5});
  two("one storage, and empty", {}, {.numel = 0});
  cases.add(
      "bools other than 0 and 1",
      cases.pickle().tensor({.storage = {.type = "BoolStorage", .numel = 24}, .sizes = {24}, .strides = {1}}),
      {"bool"});
}

void persistent_ids(HostilePickles& cases) {
  const auto add = [&](const char* name, const Pickle& id, const char* word = "storage") {
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
  add("an id that is text", start().text("storage"), "persistent id");
  add("an id that is a number", start().integer(0), "persistent id");
  add("an id that is a list", start().raw("]"), "persistent id");
  add("an id of nothing", start().raw(")"), "persistent id");
  add("an id of one", start().text("storage").raw("\x85"));
  add("an id of four",
      start().raw("(").raw(word.bytes()).raw(type.bytes()).raw(key.bytes()).raw(cpu.bytes()).raw("t"));
  add("an id of seven", start().raw("(").raw(word.bytes()).raw(type.bytes()).raw("NNNNNt"));
  add("an id of a module", id(start().text("module"), type, key, cpu, six), "persistent id");
  add("an id whose word is a number", id(six, type, key, cpu, six), "persistent id");
  add("an id whose type is text", id(word, start().text("FloatStorage"), key, cpu, six));
  add("an id whose type is a dtype", id(word, start().global("torch", "float32"), key, cpu, six));
  add("an id whose key is a number", id(word, type, start().integer(0), cpu, six));
  add("an id whose location is a number", id(word, type, key, six, six));
  add("an id whose numel is text", id(word, type, key, cpu, start().text("6")));
  add("an id whose numel is a float", id(word, type, key, cpu, start().floating(6)));
  add("an id whose numel is True", id(word, type, key, cpu, start().raw("\x88")));
}

void rebuilds(HostilePickles& cases) {
  const auto call = [&](const char* module, const char* name) {
    return cases.pickle().global(module, name).raw(")R");
  };
  cases.add("a quantized tensor", call("torch._utils", "_rebuild_qtensor"), {"quantized"});
  cases.add("a sparse tensor", call("torch._utils", "_rebuild_sparse_tensor"), {"sparse"});
  cases.add("a meta tensor", call("torch._utils", "_rebuild_meta_tensor_no_storage"), {"meta"});
  cases.add("a nested tensor", call("torch._utils", "_rebuild_nested_tensor"), {"nested"});
  cases.add("a wrapper", call("torch._utils", "_rebuild_wrapper_subclass"), {"_rebuild_wrapper_subclass"});
  cases.add("an old tensor class", call("torch", "FloatTensor"), {});
  cases.add("another device's tensor", call("torch._utils", "_rebuild_device_tensor_from_numpy"),
            {"_rebuild_device_tensor_from_numpy"});
  const auto parameter = [&](const Pickle& data, const char* requires_grad) {
    auto pickle = cases.pickle().global("torch._utils", "_rebuild_parameter").raw("(").raw(data.bytes());
    return pickle.raw(requires_grad).hooks().raw("tR");
  };
  const auto start = [&] { return Pickle(-1, cases.pickle().format()); };
  cases.add("a parameter of None", parameter(start().raw("N"), "\x88"), {"parameter"});
  cases.add("a parameter of a parameter",
            parameter(start().raw(parameter(start().tensor(), "\x88").bytes().substr(2)), "\x88"),
            {"parameter"});
  cases.add("a parameter of integers", parameter(start().tensor({.storage = {.type = "IntStorage"}}), "\x88"),
            {"gradient"});
  cases.add("a parameter of a storage", parameter(start().storage({}), "\x88"), {});
  cases.add("a parameter whose requires_grad is None", parameter(start().tensor(), "N"), {"requires_grad"});
  const auto untyped = [&](const char* dtype, int64_t bytes, int64_t offset, int64_t size) {
    auto pickle = cases.pickle().global("torch._utils", "_rebuild_tensor_v3").raw("(");
    pickle.storage({.type = "UntypedStorage", .module = "torch.storage", .numel = bytes}).integer(offset);
    return pickle.tuple({size}).tuple({1}).raw("\x89").hooks().global("torch", dtype).raw("tR");
  };
  cases.add("untyped: one element too many", untyped("uint16", 24, 0, 13), {"storage"});
  cases.add("untyped: offset too far", untyped("uint64", 24, 1, 3), {"storage"});
  cases.add("untyped: quantized", untyped("qint8", 24, 0, 1), {"quantized"});
  cases.add("untyped: no dtype", untyped("Size", 24, 0, 1), {"dtype"});
  cases.add("untyped: bools other than 0 and 1", untyped("bool", 24, 0, 24), {"bool"});
  cases.add("untyped: more bytes than the file holds", untyped("uint16", 26, 0, 1), {});
  cases.add("untyped: a dtype below a byte", untyped("uint4", 24, 0, 1), {});
  cases.add("untyped: a typed storage",
            cases.pickle()
                .global("torch._utils", "_rebuild_tensor_v3")
                .raw("(")
                .storage({})
                .integer(0)
                .tuple({1})
                .tuple({1})
                .raw("\x89")
                .hooks()
                .global("torch", "uint16")
                .raw("tR"),
            {"storage"});
}

}  // namespace

std::vector<HostileFile> hostile_tensors(Format format) {
  HostilePickles cases(format);
  geometry(cases);
  arguments(cases);
  storages(cases);
  persistent_ids(cases);
  rebuilds(cases);
  return cases.take();
}

}  // namespace attentive::test
