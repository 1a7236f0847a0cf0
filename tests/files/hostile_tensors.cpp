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

void add_hostile_storages(HostilePickles& cases) {
  storages(cases);
  persistent_ids(cases);
}

// Tensors that would read outside of their storage, and rebuild functions with wrong arguments.

void geometry(HostilePickles& cases) {
  const auto add = [&](const char* name, const TensorOf& tensor, std::vector<std::string> words) {
    cases.add(name, cases.pickle().tensor(tensor), std::move(words));
  };
  const auto sized = [](std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    return TensorOf{.sizes = std::move(sizes), .strides = std::move(strides)};
  };
  add("offset -4", {.offset = -4}, {"the storage offset of a tensor is negative: -4"});
  add("offset -1 of an empty tensor", {.offset = -1, .sizes = {0}, .strides = {1}},
      {"the storage offset of a tensor is negative: -1"});
  add("offset 1 too far", {.offset = 1}, {"a tensor reaches element 6 of storage \"0\", which has 6"});
  add("offset 2^62", {.offset = kHuge},
      {"a tensor reaches element 4611686018427387909 of storage \"0\", which has 6"});
  add("offset 2^63 - 1", {.offset = INT64_MAX, .sizes = {}, .strides = {}},
      {"a tensor reaches element 9223372036854775807 of storage \"0\", which has 6"});
  add("offset 2^63 - 1 of the first of several elements", {.offset = INT64_MAX},
      {"the sizes, strides and offset of a tensor in storage \"0\" overflow"});
  add("size -1", sized({-1, 3}, {3, 1}), {"a size or stride of a tensor is negative: -1"});
  add("size -1 beside 0", sized({-1, 0}, {3, 1}), {"a size or stride of a tensor is negative: -1"});
  add("size 2^62", sized({kHuge}, {1}),
      {"the sizes, strides and offset of a tensor in storage \"0\" overflow"});
  add("elements overflow to 0", sized({int64_t{1} << 32, int64_t{1} << 32}, {1, 1}),
      {"the sizes, strides and offset of a tensor in storage \"0\" overflow"});
  add("elements overflow, stride 0", sized({kHuge, 2, 2}, {0, 0, 0}),
      {"the sizes, strides and offset of a tensor in storage \"0\" overflow"});
  add("bytes overflow, stride 0", sized({kHuge}, {0}),
      {"the sizes, strides and offset of a tensor in storage \"0\" overflow"});
  add("elements overflow beside 0", sized({0, kHuge, kHuge}, {1, 1, 1}),
      {"the sizes, strides and offset of a tensor in storage \"0\" overflow"});
  add("elements overflow before 0", sized({kHuge, kHuge, 0}, {1, 1, 1}),
      {"the sizes, strides and offset of a tensor in storage \"0\" overflow"});
  add("stride -1", sized({2}, {-1}), {"a size or stride of a tensor is negative: -1"});
  add("stride -1 of one element", sized({1}, {-1}), {"a size or stride of a tensor is negative: -1"});
  add("stride 2^62", sized({3}, {kHuge}),
      {"the sizes, strides and offset of a tensor in storage \"0\" overflow"});
  add("stride 2^63 - 1", sized({2, 2}, {INT64_MAX, INT64_MAX}),
      {"the sizes, strides and offset of a tensor in storage \"0\" overflow"});
  add("stride too far", sized({2, 3}, {4, 1}), {"a tensor reaches element 6 of storage \"0\", which has 6"});
  add("more strides than sizes", sized({2, 3}, {3, 1, 1}), {"a tensor of 2 sizes has 3 strides"});
  add("fewer strides than sizes", sized({2, 3}, {1}), {"a tensor of 2 sizes has 1 strides"});
  add("rank 65", sized(std::vector<int64_t>(65, 1), std::vector<int64_t>(65, 1)),
      {"a tensor of 65 dimensions exceeds the limit of 64"});
  add("rank 100,000", sized(std::vector<int64_t>(100'000, 1), std::vector<int64_t>(100'000, 1)),
      {"a tensor of 100000 dimensions exceeds the limit of 64"});
  add("integers that require a gradient", {.storage = {.type = "IntStorage"}, .requires_grad = true},
      {"a tensor of dtype int32 requires a gradient"});
  add("bools that require a gradient",
      {.storage = {.type = "BoolStorage", .numel = 24}, .sizes = {1}, .strides = {1}, .requires_grad = true},
      {"a tensor of dtype bool requires a gradient"});
}

// A tensor with these arguments between the function and the hooks.
Pickle rebuilt(const Pickle& arguments, const char* function = "_rebuild_tensor_v2") {
  auto pickle =
      Pickle(2, arguments.format()).global("torch._utils", function).raw("(").raw(arguments.bytes());
  return pickle.hooks().raw("tR");
}

void arguments(HostilePickles& cases) {
  const auto start = [&] { return Pickle(-1, cases.pickle().format()); };
  const auto good = [&] { return start().storage({}); };
  cases.add("offset as text", rebuilt(good().text("0").tuple({6}).tuple({1}).raw("\x89")),
            {"the storage offset of a tensor to be an int, got a str"});
  cases.add("offset as a float", rebuilt(good().floating(0).tuple({6}).tuple({1}).raw("\x89")),
            {"the storage offset of a tensor to be an int, got a float"});
  cases.add("offset of 2^64",
            rebuilt(good().counted('\x8a', 1, 9, "\0\0\0\0\0\0\0\0\1"s).tuple({6}).tuple({1}).raw("\x89")),
            {"the storage offset of a tensor to be an int, got an int beyond 64 bits"});
  cases.add("sizes as text", rebuilt(good().integer(0).text("6").tuple({1}).raw("\x89")),
            {"the sizes and strides of a tensor to be a tuple, got a str"});
  cases.add("size as a float", rebuilt(good().integer(0).floating(6).raw("\x85").tuple({1}).raw("\x89")),
            {"a size or stride of a tensor to be an int, got a float"});
  cases.add(
      "size of 2^64",
      rebuilt(
          good().integer(0).counted('\x8a', 1, 9, "\0\0\0\0\0\0\0\0\1"s).raw("\x85").tuple({1}).raw("\x89")),
      {"a size or stride of a tensor to be an int, got an int beyond 64 bits"});
  cases.add("strides as None", rebuilt(good().integer(0).tuple({6}).raw("N\x89")),
            {"the sizes and strides of a tensor to be a tuple, got None"});
  cases.add("requires_grad as 1", rebuilt(good().integer(0).tuple({6}).tuple({1}).integer(1)),
            {"requires_grad of a tensor to be a bool, got an int"});
  cases.add("no storage", rebuilt(start().raw("N").integer(0).tuple({6}).tuple({1}).raw("\x89")),
            {"the storage of a tensor to be a storage, got None"});
  cases.add("a tensor for a storage", rebuilt(start().tensor().integer(0).tuple({6}).tuple({1}).raw("\x89")),
            {"the storage of a tensor to be a storage, got a tensor"});
  cases.add("text for a storage", rebuilt(start().text("0").integer(0).tuple({6}).tuple({1}).raw("\x89")),
            {"the storage of a tensor to be a storage, got a str"});
  cases.add("too few arguments", rebuilt(good().integer(0)), {"a tensor cannot be made of 3 arguments"});
  cases.add("no arguments", cases.pickle().global("torch._utils", "_rebuild_tensor_v2").raw(")R"),
            {"a tensor cannot be made of 0 arguments"});
  const auto all = [&] { return good().integer(0).tuple({6}).tuple({1}).raw("\x89"); };
  cases.add("too many arguments", rebuilt(all().raw("NNN")), {"a tensor cannot be made of 9 arguments"});
  const auto with_hooks = [&](Pickle hooks) {
    return cases.pickle()
        .global("torch._utils", "_rebuild_tensor_v2")
        .raw("(")
        .raw(all().bytes())
        .raw(hooks.raw("tR").bytes());
  };
  cases.add("hooks", with_hooks(start().raw("}").text("hook").raw("Ns")), {"a tensor with backward hooks"});
  cases.add("hooks in an OrderedDict", with_hooks(start().hooks().text("hook").raw("Ns")),
            {"a tensor with backward hooks"});
  cases.add("hooks as a list", with_hooks(start().raw("]")), {"a tensor with backward hooks"});
  const auto with_metadata = [&](const Pickle& metadata, const StorageOf& storage = {}) {
    auto pickle = cases.pickle().global("torch._utils", "_rebuild_tensor_v2").raw("(").storage(storage);
    return pickle.integer(0).tuple({2}).tuple({1}).raw("\x89").hooks().raw(metadata.bytes()).raw("tR");
  };
  cases.add("metadata as a list", with_metadata(start().raw("]")),
            {"the metadata of a tensor to be a dict, got a list"});
  cases.add("unknown metadata", with_metadata(start().raw("}").text("zerotensor").raw("\x88s")),
            {"metadata \"zerotensor\" of a tensor are not read here"});
  cases.add("a conjugated real tensor", with_metadata(start().raw("}").text("conj").raw("\x88s")),
            {"metadata \"conj\" of a tensor are not read here"});
  cases.add("conj as text",
            with_metadata(start().raw("}").text("conj").text("yes").raw("s"),
                          {.type = "ComplexFloatStorage", .numel = 3}),
            {"expected metadata of a tensor to be a bool, got a str"});
  cases.add("negated integers", with_metadata(start().raw("}").text("neg").text("yes").raw("s")),
            {"expected metadata of a tensor to be a bool, got a str"});
}

void rebuilds(HostilePickles& cases) {
  const auto call = [&](const char* module, const char* name) {
    return cases.pickle().global(module, name).raw(")R");
  };
  cases.add("a quantized tensor", call("torch._utils", "_rebuild_qtensor"),
            {"a quantized tensor, \"torch._utils._rebuild_qtensor\""});
  cases.add("a sparse tensor", call("torch._utils", "_rebuild_sparse_tensor"), {"a sparse tensor, \""});
  cases.add("a meta tensor", call("torch._utils", "_rebuild_meta_tensor_no_storage"),
            {"a tensor without data (meta device), \""});
  cases.add("a nested tensor", call("torch._utils", "_rebuild_nested_tensor"), {"a nested tensor, \""});
  cases.add("a wrapper", call("torch._utils", "_rebuild_wrapper_subclass"), {"_rebuild_wrapper_subclass"});
  cases.add("an old tensor class", call("torch", "FloatTensor"), {"it refers to \"torch.FloatTensor\""});
  cases.add("another device's tensor", call("torch._utils", "_rebuild_device_tensor_from_numpy"),
            {"_rebuild_device_tensor_from_numpy"});
  const auto parameter = [&](const Pickle& data, const char* requires_grad) {
    auto pickle = cases.pickle().global("torch._utils", "_rebuild_parameter").raw("(").raw(data.bytes());
    return pickle.raw(requires_grad).hooks().raw("tR");
  };
  const auto start = [&] { return Pickle(-1, cases.pickle().format()); };
  cases.add("a parameter of None", parameter(start().raw("N"), "\x88"),
            {"expected the data of a parameter to be a tensor, got None"});
  cases.add("a parameter of a parameter",
            parameter(start().raw(parameter(start().tensor(), "\x88").bytes().substr(2)), "\x88"),
            {"expected the data of a parameter to be a tensor, got a Parameter"});
  cases.add("a parameter of integers", parameter(start().tensor({.storage = {.type = "IntStorage"}}), "\x88"),
            {"a tensor of dtype int32 requires a gradient"});
  cases.add("a parameter of a storage", parameter(start().storage({}), "\x88"),
            {"expected the data of a parameter to be a tensor, got a storage"});
  cases.add("a parameter whose requires_grad is None", parameter(start().tensor(), "N"),
            {"expected requires_grad of a parameter to be a bool, got None"});
  const auto from_type = [&](const char* function, const char* module, const char* type) {
    auto pickle = cases.pickle().global("torch._tensor", "_rebuild_from_type_v2").raw("(");
    pickle.global("torch._utils", function).global(module, type).raw("(");
    if (function == std::string_view("_rebuild_parameter")) {
      pickle.raw(start().tensor().bytes()).raw("\x88").hooks();
    } else {
      pickle.storage({}).integer(0).tuple({6}).tuple({1}).raw("\x89").hooks();
    }
    return pickle.raw("t}tR");
  };
  const std::string another = "a tensor of another class than torch.Tensor";
  cases.add("a tensor with attributes of a class that is a parameter's",
            from_type("_rebuild_tensor_v2", "torch.nn.parameter", "Parameter"), {another});
  cases.add("a parameter with attributes of a class that is a tensor's",
            from_type("_rebuild_parameter", "torch", "Tensor"), {another});
  cases.add("a tensor with attributes of a class that is a function",
            from_type("_rebuild_tensor_v2", "torch", "Size"), {another});
  const auto untyped = [&](const char* dtype, int64_t bytes, int64_t offset, int64_t size) {
    auto pickle = cases.pickle().global("torch._utils", "_rebuild_tensor_v3").raw("(");
    pickle.storage({.type = "UntypedStorage", .module = "torch.storage", .numel = bytes}).integer(offset);
    return pickle.tuple({size}).tuple({1}).raw("\x89").hooks().global("torch", dtype).raw("tR");
  };
  cases.add("untyped: one element too many", untyped("uint16", 24, 0, 13),
            {"a tensor reaches element 12 of storage \"0\", which has 12"});
  cases.add("untyped: offset too far", untyped("uint64", 24, 1, 3),
            {"a tensor reaches element 3 of storage \"0\", which has 3"});
  cases.add("untyped: quantized", untyped("qint8", 24, 0, 1), {"a quantized dtype, \"torch.qint8\""});
  cases.add("untyped: no dtype", untyped("Size", 24, 0, 1),
            {"expected the dtype of a tensor to be a dtype, got a class or function"});
  cases.add("untyped: bools other than 0 and 1", untyped("bool", 24, 0, 24),
            {"storage \"0\" of a bool tensor holds a byte other than 0 and 1"});
  cases.add(
      "untyped: more bytes than the file holds", untyped("uint16", 26, 0, 1),
      {cases.either("26 elements of 1 bytes, but has 24 bytes", "26 elements, but 24 follow in 24 bytes")});
  cases.add("untyped: a dtype below a byte", untyped("uint4", 24, 0, 1),
            {"a tensor of dtype uint4 has no data"});
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
            {"a tensor of dtype uint16 in a storage of dtype float32"});
}

}  // namespace

std::vector<HostileFile> hostile_tensors(Format format) {
  HostilePickles cases(format);
  geometry(cases);
  arguments(cases);
  add_hostile_storages(cases);
  rebuilds(cases);
  return cases.take();
}

}  // namespace attentive::test
