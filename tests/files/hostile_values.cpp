#include "files/hostile_torch_file.h"

// Containers that contain themselves, keys that cannot be hashed, and allowed functions with wrong arguments.

namespace attentive::test {
namespace {

using namespace std::string_literals;

void cycles(HostilePickles& cases) {
  cases.add("a list in itself", cases.pickle().raw("]q\0h\0a"s), {" that contains itself"});
  cases.add("a list in itself by APPENDS", cases.pickle().raw("]q\0(h\0e"s), {" that contains itself"});
  cases.add("a dict in itself", cases.pickle().raw("}q\0K\1h\0s"s), {" that contains itself"});
  cases.add("a dict in itself by SETITEMS", cases.pickle().raw("}q\0(K\1h\0u"s), {" that contains itself"});
  cases.add("an OrderedDict in itself",
            cases.pickle().global("collections", "OrderedDict").raw(")Rq\0K\1h\0s"s),
            {" that contains itself"});
  cases.add("a list in a tuple in itself", cases.pickle().raw("]q\0h\0\x85"s).raw("a"),
            {" that contains itself"});
  cases.add("two lists in each other", cases.pickle().raw("(]q\0]q\1h\0ah\0h\1at"s),
            {" that contains itself"});
  cases.add("a dict in its own key", cases.pickle().raw("}q\0h\0\x85Ns"s), {"a dict that contains itself"});
}

void keys(HostilePickles& cases) {
  cases.add("a list as a key", cases.pickle().raw("}]Ns"), {"a key of a dict is a list"});
  cases.add("a dict as a key", cases.pickle().raw("}}Ns"), {"a key of a dict is a dict"});
  cases.add("a set as a key", cases.pickle(4).raw("}\x8fNs"), {"a key of a dict is a set"});
  cases.add("a list in a tuple as a key", cases.pickle().raw("}]\x85Ns"),
            {"a key of a dict is a tuple that holds a list"});
  cases.add("a tensor as a key", cases.pickle().raw("}").tensor().raw("Ns"), {"a key of a dict is a tensor"});
  cases.add("a storage as a key", cases.pickle().raw("}").storage({}).raw("Ns"),
            {"a storage that is not part of a tensor"});
  cases.add("a function as a key", cases.pickle().raw("}").global("torch", "Size").raw("Ns"),
            {"a class or function as a value"});
  const auto twice = [&](const char* name, const Pickle& first, const Pickle& second) {
    cases.add(std::string("a key twice: ") + name,
              cases.pickle(4).raw("}(").raw(first.bytes()).raw("N").raw(second.bytes()).raw("Nu"), {"twice"});
  };
  const auto value = [] { return Pickle(-1); };
  twice("text", value().text("a"), value().counted('\x8c', 1, 1, "a"));
  twice("integers", value().integer(7), value().op('J', 7, 4));
  twice("a long integer", value().counted('\x8a', 1, 9, "\1\0\0\0\0\0\0\0\1"s),
        value().counted('\x8a', 1, 10, "\1\0\0\0\0\0\0\0\1\0"s));
  twice("True and 1", value().raw("\x88"), value().integer(1));
  twice("1 and 1.0", value().integer(1), value().floating(1));
  twice("0.0 and -0.0", value().floating(0.0), value().floating(-0.0));
  twice("None", value().raw("N"), value().raw("N"));
  twice("tuples", value().raw("K\1K\2\x86"), value().raw("K\1K\2\x86"));
  cases.add("a key twice by SETITEM", cases.pickle().raw("}K\1NsK\1Ns"), {"twice"});
  cases.add("a member twice", cases.pickle(4).raw("\x8f(K\1K\1\x90"), {"twice"});
  cases.add("a key without a value", cases.pickle().raw("}(K\1NK\2u"), {"a key without a value"});
  cases.add("a list in a set", cases.pickle(4).raw("\x8f(]\x90"), {"a key of a set is a list"});
  cases.add("a list in a frozenset", cases.pickle(4).raw("(]\x91"), {"a key of a set is a list"});
}

void targets(HostilePickles& cases) {
  cases.add("APPEND to a tuple", cases.pickle().raw(")Na"), {"it puts items into a value that is a tuple"});
  cases.add("APPEND to a dict", cases.pickle().raw("}Na"), {"it puts items into a value that is a dict"});
  cases.add("APPENDS to a set", cases.pickle(4).raw("\x8f(Ne"), {"it puts items into a value that is a set"});
  cases.add("SETITEM on a list", cases.pickle().raw("]K\0Ns"s),
            {"it puts items into a value that is a list"});
  cases.add("SETITEMS on None", cases.pickle().raw("N(K\0Nu"s), {"it puts items into a value that is None"});
  cases.add("ADDITEMS to a list", cases.pickle(4).raw("](N\x90"),
            {"it puts items into a value that is a list"});
  cases.add("APPEND to a tensor", cases.pickle().tensor().raw("Na"),
            {"it puts items into a value that is a tensor"});
  cases.add("SETITEM on a tensor", cases.pickle().tensor().raw("K\0Ns"s),
            {"it puts items into a value that is a tensor"});
  cases.add("BUILD on a tensor", cases.pickle().tensor().raw("}b"), {"a state for a value that is a tensor"});
  cases.add("BUILD on a dict", cases.pickle().raw("}}b"), {"a state for a value that is a dict"});
  cases.add("BUILD on a list", cases.pickle().raw("]}b"), {"a state for a value that is a list"});
  cases.add("BUILD on a function", cases.pickle().global("torch", "Size").raw("}b"),
            {"a state for a value that is a class or function"});
  cases.add("BUILD with a list", cases.pickle().hooks().raw("]b"),
            {"a state for a value that is an OrderedDict"});
  cases.add("NEWOBJ of OrderedDict", cases.pickle().global("collections", "OrderedDict").raw(")\x81"),
            {"opcode 0x81 is not read here"});
  cases.add("NEWOBJ of a string", cases.pickle().text("x").raw(")\x81"), {"opcode 0x81 is not read here"});
  cases.add("NEWOBJ_EX", cases.pickle(4).global("torch", "Size").raw(")}\x92"),
            {"opcode 0x92 is not read here"});
  cases.add("REDUCE of a string", cases.pickle().text("os.system").raw(")R"),
            {"it calls a value that is a str"});
  cases.add("REDUCE of a tensor", cases.pickle().tensor().raw(")R"), {"it calls a value that is a tensor"});
  cases.add("REDUCE of a dtype", cases.pickle().global("torch", "float32").raw(")R"),
            {"it calls a value that is a dtype"});
  cases.add("REDUCE of a storage type",
            cases.pickle().global("torch", "FloatStorage").integer(1 << 30).call(1),
            {"it calls something that is not a function here"});
  cases.add("REDUCE of Tensor", cases.pickle().global("torch", "Tensor").integer(1 << 30).call(1),
            {"it calls something that is not a function here"});
  cases.add("REDUCE without a tuple", cases.pickle().global("torch", "Size").raw("]R"),
            {"it calls with arguments that are a list"});
  cases.add("a function where a value belongs", cases.pickle().raw("]").global("torch", "Size").raw("a"),
            {"a class or function as a value"});
  cases.add("a storage where a value belongs", cases.pickle().raw("]").storage({}).raw("a"),
            {"a storage that is not part of a tensor"});
}

void calls(HostilePickles& cases) {
  const auto call = [&](const char* name, const char* module, const char* function, const Pickle& arguments,
                        int count, std::vector<std::string> words) {
    cases.add(name, cases.pickle().global(module, function).raw(arguments.bytes()).call(count),
              std::move(words));
  };
  const auto value = [] { return Pickle(-1); };
  const std::string builtin = "__builtin__";
  call("encode in another coding", "_codecs", "encode", value().text("x").text("rot13"), 2,
       {"bytes in encoding \"rot13\" are not read here"});
  call("encode beyond Latin-1", "_codecs", "encode", value().text("\u20ac").text("latin1"), 2,
       {"bytes that hold a character beyond U+00FF"});
  call("encode of a number", "_codecs", "encode", value().integer(1).text("latin1"), 2,
       {"expected bytes to be a str, got an int"});
  call("encode of nothing", "_codecs", "encode", value().text("x"), 1,
       {"bytes cannot be made of 1 arguments"});
  call("a bytearray of 2^40 bytes", "__builtin__", "bytearray", value().integer(int64_t{1} << 40), 1,
       {"expected the argument of bytearray to be bytes, got an int"});
  call("a bytearray of a list", "__builtin__", "bytearray", value().raw("](K\1K\2e"), 1,
       {"expected the argument of bytearray to be bytes, got a list"});
  call("a bytearray of text", "__builtin__", "bytearray", value().text("x"), 1,
       {"expected the argument of bytearray to be bytes, got a str"});
  call("a set of a number", "__builtin__", "set", value().integer(1), 1,
       {"expected the argument of set to be a list, got an int"});
  call("a set of a list of lists", "__builtin__", "set", value().raw("]]a"), 1, {"a key of a set is a list"});
  call("a frozenset of itself", "__builtin__", "frozenset", value().raw("]q\0h\0a"s), 1,
       {"a list that contains itself"});
  call("a complex of text", "__builtin__", "complex", value().text("1").text("2"), 2,
       {"expected the real part to be a float, got a str"});
  call("a complex of three", "__builtin__", "complex", value().raw("K\1K\1K\1"), 3,
       {"a complex number cannot be made of 3 arguments"});
  call("a size of text", "torch", "Size", value().text("ab").raw("\x85"), 1,
       {"expected an item of a torch.Size to be an int, got a str"});
  call("a size of a number", "torch", "Size", value().integer(3), 1,
       {"expected the argument of torch.Size to be a tuple, got an int"});
  call("a device of no kind", "torch", "device", value().text("toaster"), 1,
       {"there is no device type \"toaster\""});
  call("a device of 2^40", "torch", "device", value().text("cuda").integer(int64_t{1} << 40), 2,
       {"a device cannot have index 1099511627776"});
  call("a device of -7", "torch", "device", value().text("cuda").integer(-7), 2,
       {"a device cannot have index -7"});
  call("a device with a number in its text and one beside it", "torch", "device",
       value().text("cuda:1").integer(2), 2, {"the device type \"cuda:1\" has an index"});
  call("a device of a number", "torch", "device", value().integer(0), 1,
       {"expected the type of a device to be a str, got an int"});
  call("a layout of no kind", "torch.serialization", "_get_layout", value().text("torch.float32"), 1,
       {"layout \"torch.float32\" is not read here"});
  call("a layout of a number", "torch.serialization", "_get_layout", value().integer(1), 1,
       {"expected the name of a layout to be a str, got an int"});
  call("an OrderedDict of a number", "collections", "OrderedDict", value().integer(1), 1,
       {"expected the argument of OrderedDict to be a list, got an int"});
  call("an OrderedDict of a list of numbers", "collections", "OrderedDict", value().raw("](K\1K\2e"), 1,
       {"expected the argument of OrderedDict to hold pairs, got an int"});
  call("an OrderedDict of triples", "collections", "OrderedDict", value().raw("](NNN\x87").raw("e"), 1,
       {"expected the argument of OrderedDict to hold pairs, got a tuple"});
  call("a Counter of text", "collections", "Counter", value().text("abc"), 1,
       {"expected the argument of Counter to be a dict, got a str"});
}

void strings(HostilePickles& cases) {
  const auto refused = [&](const char* name, std::string_view bytes) {
    cases.add(std::string("no UTF-8: ") + name, cases.pickle().text(bytes), {"a string that is not UTF-8"});
    cases.add(std::string("no UTF-8 in a key: ") + name, cases.pickle().raw("}").text(bytes).raw("Ns"),
              {"a string that is not UTF-8"});
  };
  refused("a byte", "\xff");
  refused("a surrogate", "\xed\xa0\x80");
  refused("an overlong form", "\xc0\x80");
  refused("cut", "\xe2\x82");
  refused("beyond Unicode", "\xf4\x90\x80\x80");
  cases.add("no UTF-8 in a short string", cases.pickle(4).counted('\x8c', 1, 1, "\xff"),
            {"a string that is not UTF-8"});
  cases.add("no UTF-8 in a long string", cases.pickle(4).counted('\x8d', 8, 1, "\xff"),
            {"a string that is not UTF-8"});
}

}  // namespace

std::vector<HostileFile> hostile_values(Format format) {
  HostilePickles cases(format);
  cycles(cases);
  keys(cases);
  targets(cases);
  calls(cases);
  strings(cases);
  return cases.take();
}

}  // namespace attentive::test
