#include "files/hostile_torch_file.h"

// Opcodes that torch.save never writes, or not in this place.

namespace attentive::test {
namespace {

std::string hex_of(char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  return std::string("0x") + kDigits[value >> 4] + kDigits[value & 15];
}

// The reason for refusing an opcode that makes no value by itself, on an empty stack and followed by STOP.
std::string reason_alone(const HostilePickles& cases, char opcode) {
  const auto is_one_of = [&](std::string_view opcodes) {
    return opcodes.find(opcode) != std::string_view::npos;
  };
  if (is_one_of("(.")) return "expected one value at its end, got 0";
  if (is_one_of("QRabs\x85\x86\x87\x93\x94")) return "it takes more from its stack than is there";
  if (is_one_of("etu\x90\x91")) return "it takes up to a mark that is not there";
  if (opcode == 'h') return "memo entry 46 does not exist";  // STOP is byte 46
  if (opcode == 'q') return "memo entry 46 follows entry 0";
  // In the old format, the bytes of the next pickle are read as the argument.
  if (is_one_of("BCGJKMTUXcjr\x8a\x8b\x8c\x8d\x8e\x95\x96")) {
    return cases.either("its pickle is truncated", "its pickle");
  }
  return "opcode " + hex_of(opcode) + " is not read here";
}

// Each opcode by itself: on an empty stack, without its argument, or unknown.
void single_opcodes(HostilePickles& cases) {
  constexpr std::string_view kValues = "N]})\x88\x89\x8f";  // complete values by themselves
  for (int opcode = 0; opcode < 256; ++opcode) {
    const auto byte = static_cast<char>(opcode);
    if (kValues.find(byte) != std::string_view::npos) continue;
    cases.add("opcode " + std::to_string(opcode) + " alone", cases.pickle().op(byte, 0, 0),
              {reason_alone(cases, byte)});
  }
}

// Opcodes that need a MARK, without one; and opcodes that take a fixed number of values, with a MARK among
// these.
void marks(HostilePickles& cases) {
  for (const char* opcode : {"t", "e", "u", "\x90", "\x91"}) {
    cases.add(std::string("no MARK for ") + opcode, cases.pickle(4).raw("]N").raw(opcode),
              {"it takes up to a mark that is not there"});
  }
  const std::string stack = "it takes more from its stack than is there";
  for (const char* opcode : {"\x85", "a", "s", "R", "b", "Q", "q\1", "\x94"}) {
    cases.add(std::string("a MARK under ") + opcode, cases.pickle(4).raw("]N(").raw(opcode), {stack});
  }
  cases.add("a MARK under STOP", cases.pickle().raw("]N("), {"expected one value at its end, got 2"});
  cases.add("a MARK among the values of SETITEM", cases.pickle().raw("}N(Ns"), {stack});
  cases.add("a MARK between two values of a pair", cases.pickle().raw("N(N\x86"), {stack});
  cases.add("a MARK between three values", cases.pickle().raw("NN(N\x87"), {stack});
  cases.add("a MARK is left", cases.pickle().raw("(N"), {"expected one value at its end, got 1"});
}

void stack(HostilePickles& cases) {
  cases.add("STOP on an empty stack", cases.pickle(), {"expected one value at its end, got 0"});
  cases.add("two values are left", cases.pickle().raw("NN"), {"expected one value at its end, got 2"});
  cases.add("a global is left", cases.pickle().global("torch", "Size"), {"a class or function as a value"});
  cases.add("a storage is left", cases.pickle().storage({}), {"a storage that is not part of a tensor"});
  cases.add("POP of the only value", cases.pickle().raw("N0"), {"opcode 0x30 is not read here"});
  cases.add("POP", cases.pickle().raw("NN0"), {"opcode 0x30 is not read here"});
  cases.add("POP_MARK", cases.pickle().raw("N(N1"), {"opcode 0x31 is not read here"});
  cases.add("DUP", cases.pickle().raw("N2\x86"), {"opcode 0x32 is not read here"});
}

void memo(HostilePickles& cases) {
  cases.add("GET of nothing", cases.pickle().raw("h\5"), {"memo entry 5 does not exist"});
  cases.add("LONG_BINGET of nothing", cases.pickle().op('j', 0x80000000, 4),
            {"memo entry 2147483648 does not exist"});
  cases.add("GET of the next", cases.pickle().raw("Nq").raw(std::string_view("\0h\1\x86", 4)),
            {"memo entry 1 does not exist"});
  cases.add("GET of one that was left out", cases.pickle().raw(std::string_view("Nq\1h\0\x86", 6)),
            {"memo entry 0 does not exist"});
  cases.add("PUT at 2^31", cases.pickle().raw("N").op('r', 0x80000000, 4),
            {"memo entry 2147483648 follows entry 0"});
  cases.add("PUT at 2^32 - 1", cases.pickle().raw("N").op('r', 0xffffffff, 4),
            {"memo entry 4294967295 follows entry 0"});
  cases.add("PUT of nothing", cases.pickle().put(0).raw("N"), {"it takes more from its stack than is there"});
  cases.add("MEMOIZE of nothing", cases.pickle(4).raw("\x94N"),
            {"it takes more from its stack than is there"});
}

void protocols(HostilePickles& cases) {
  cases.add("protocol 0", Pickle(-1).raw("N"), {"of protocol 2 to 5, got none"});
  cases.add("protocol 0 said", cases.pickle(0).raw("N"), {"expected protocol 2 to 5, got 0"});
  cases.add("protocol 1", cases.pickle(1).raw("N"), {"expected protocol 2 to 5, got 1"});
  cases.add("protocol 6", cases.pickle(6).raw("N"), {"expected protocol 2 to 5, got 6"});
  cases.add("protocol 255", cases.pickle(255).raw("N"), {"expected protocol 2 to 5, got 255"});
  cases.add("PROTO twice", cases.pickle().op('\x80', 2, 1).raw("N"), {"opcode 0x80"});
  cases.add_whole("an empty pickle", Pickle(-1), {"its pickle is truncated"});
  cases.add_whole("no STOP", cases.pickle().raw("N"),
                  {cases.either("its pickle is truncated", "opcode 0x80 is not read here")});
  cases.add(
      "a second pickle", cases.pickle().raw("N.").raw("\x80\2N"),
      {cases.either("4 bytes after the end of its pickle", "expected a list of storage keys, got None")});
  cases.add("a byte behind STOP", cases.pickle().raw("N."),
            {cases.either("1 bytes after the end of its pickle", "of protocol 2 to 5, got none")});
}

void text_opcodes(HostilePickles& cases) {
  for (const char* opcode :
       {"I1\n", "I01\n", "L1L\n", "F1.5\n", "S'x'\n", "Vx\n", "(lp0\n", "(dp0\n", "Np0\ng0\n\x86"}) {
    cases.add(std::string("protocol 0: ") + opcode, cases.pickle().raw(opcode), {"opcode 0x"});
  }
  cases.add("PERSID", cases.pickle().raw("Pstorage\n"), {"opcode 0x"});
  cases.add("INST", cases.pickle().raw("(ios\nsystem\n"), {"opcode 0x"});
  cases.add("OBJ", cases.pickle().raw("(").global("collections", "OrderedDict").raw("o"), {"opcode 0x"});
  for (int width : {1, 2, 4}) {
    const auto opcode = static_cast<char>(width == 1 ? '\x82' : width == 2 ? '\x83' : '\x84');
    cases.add("EXT" + std::to_string(width), cases.pickle().op(opcode, 1, static_cast<size_t>(width)),
              {"opcode 0x"});
  }
  cases.add("NEXT_BUFFER", cases.pickle(5).raw("\x97"), {"opcode 0x"});
  cases.add("READONLY_BUFFER", cases.pickle(5).raw("N\x98"), {"opcode 0x"});
}

void globals(HostilePickles& cases) {
  const auto call = [&](const char* module, const char* name) {
    return cases.pickle().global(module, name).text("true").call(1);
  };
  cases.add("os.system", call("os", "system"), {"os.system"});
  cases.add("posix.system", call("posix", "system"), {"posix.system"});
  cases.add("eval", call("builtins", "eval"), {"builtins.eval"});
  cases.add("exec of Python 2", call("__builtin__", "exec"), {"builtins.exec"});
  cases.add("getattr", call("builtins", "getattr"), {"builtins.getattr"});
  cases.add("torch.load", call("torch", "load"), {"torch.load"});
  cases.add("torch.hub.load", call("torch.hub", "load"), {"torch.hub.load"});
  cases.add("a method of a class", call("torch", "Size.__reduce__"), {"torch.Size.__reduce__"});
  cases.add("an attribute through a module", call("torch.serialization", "os.system"),
            {"torch.serialization.os.system"});
  cases.add("a rebuild function of another module", call("torch", "_utils._rebuild_tensor_v2"),
            {"torch._utils._rebuild_tensor_v2"});
  cases.add("a known name of another module", call("os", "OrderedDict"), {"os.OrderedDict"});
  cases.add("a rebuild function of no module", call("", "_rebuild_tensor_v2"), {"._rebuild_tensor_v2"});
  cases.add("a dtype of another module", cases.pickle().global("os", "float32"), {"os.float32"});
  cases.add("an empty name", call("", ""), {"refers to"});
  cases.add("not called", cases.pickle().global("os", "system"), {"os.system"});
  cases.add("in a list that is popped", cases.pickle().raw("N").global("os", "system").raw("0"),
            {"os.system"});
  cases.add("no end of the name", cases.pickle().raw("cos\nsystem"), {"its pickle is truncated"});
  cases.add("no UTF-8", cases.pickle().global("os", "\xff"), {"os."});
  cases.add("escape sequences", call("\x1b[2J", "\r\x7f\u009b2J"), {"refers to"});
  cases.add("STACK_GLOBAL os.system", cases.pickle(4).text("os").text("system").raw("\x93"), {"os.system"});
  cases.add("STACK_GLOBAL of integers", cases.pickle(4).integer(1).integer(2).raw("\x93"),
            {"a global without a name"});
  cases.add("STACK_GLOBAL of a list", cases.pickle(4).raw("]").text("system").raw("\x93"),
            {"a global without a name"});
  cases.add("STACK_GLOBAL of one string", cases.pickle(4).text("os").raw("\x93"),
            {"it takes more from its stack than is there"});
}

}  // namespace

std::vector<HostileFile> hostile_opcodes(Format format) {
  HostilePickles cases(format);
  single_opcodes(cases);
  marks(cases);
  stack(cases);
  memo(cases);
  protocols(cases);
  text_opcodes(cases);
  globals(cases);
  return cases.take();
}

// Files that try to cost more than their size: false claims, depth, numbers of objects, repetition.
namespace {

constexpr size_t kMany = 10'000'000;
constexpr const char* kMemory = "bytes of memory (max_pickle_bytes)";
constexpr const char* kDepth = "it nests containers more than 100 deep (max_depth)";

void claims(HostilePickles& cases) {
  const auto claim = [&](const char* name, char opcode, size_t width, uint64_t length,
                         const char* reason = "its pickle is truncated: ") {
    cases.add(name, cases.pickle(5).counted(opcode, width, length, "abc"), {reason});
  };
  claim("a string of 4 GiB", 'X', 4, 0xffffffff);
  claim("a string of 2^63 bytes", '\x8d', 8, uint64_t{1} << 63);
  claim("a string of 2^64 - 1 bytes", '\x8d', 8, ~uint64_t{0});
  claim("a short string", '\x8c', 1, 255);
  claim("bytes of 4 GiB", 'B', 4, 0xffffffff);
  claim("bytes of 2^40", '\x8e', 8, uint64_t{1} << 40);
  claim("a bytearray of 2^40", '\x96', 8, uint64_t{1} << 40);
  claim("short bytes", 'C', 1, 255);
  claim("a number of 255 bytes", '\x8a', 1, 255);
  claim("a number of 2 GiB", '\x8b', 4, 0x7fffffff, "an integer of 2147483647 bytes exceeds the limit");
  claim("a number of negative length", '\x8b', 4, 0xffffffff,
        "an integer of 4294967295 bytes exceeds the limit");
  claim("a frame of 2^62 bytes", '\x95', 8, uint64_t{1} << 62, "a frame beyond its end");
  claim("a frame of 2^64 - 1 bytes", '\x95', 8, ~uint64_t{0}, "a frame beyond its end");
}

void depth(HostilePickles& cases) {
  const auto pairs = [](size_t count) { return times(count, "}K\1") + "N" + times(count, "s"); };
  cases.add("deep tuples", cases.pickle().raw("N").raw(times(kMany, "\x85")), {kMemory});
  cases.add("deep pairs", cases.pickle().raw(times(kMany / 2, "N")).raw(times(kMany / 2 - 1, "\x86")),
            {kMemory});
  cases.add("deep lists", cases.pickle().raw(times(kMany, "]")).raw(times(kMany - 1, "a")), {kMemory});
  cases.add("deep dicts", cases.pickle().raw(pairs(kMany / 4)), {kMemory});
  cases.add("101 tuples", cases.pickle().raw("N").raw(times(101, "\x85")), {kDepth});
  cases.add("101 lists", cases.pickle().raw(times(101, "]")).raw(times(100, "a")), {kDepth});
  cases.add("101 dicts", cases.pickle().raw(pairs(101)), {kDepth});
  // Each list is appended to the previous one while it is empty, so that no single step is deep.
  std::string outside("(]q\0", 4);
  for (uint64_t i = 0; i < 200; ++i) outside += "h" + little(i, 1) + "]q" + little(i + 1, 1) + "a";
  cases.add("lists that are filled from the outside", cases.pickle().raw(outside).raw("t"), {kDepth});
}

void numbers(HostilePickles& cases) {
  const auto many = [&](const char* name, size_t count, std::string_view what, const char* reason = kMemory) {
    cases.add(name, cases.pickle(4).raw("(").raw(times(count, what)).raw("t"), {reason});
  };
  many("ten million marks", kMany, "(", "expected one value at its end, got 1");
  many("ten million Nones", kMany, "N");
  many("ten million empty lists", kMany, "]");
  many("ten million empty dicts", kMany, "}");
  many("ten million empty sets", kMany, "\x8f");
  many("five million empty strings", kMany / 2, std::string_view("\x8c\0", 2));
  many("five million integers", kMany / 2, "Jabcd");
  many("a million globals", kMany / 10, "ctorch\nSize\n", "a class or function as a value");
  many("a million hooks", kMany / 10, "ccollections\nOrderedDict\n)R");
  cases.add("fifteen million memos", cases.pickle(4).raw("N").raw(times(kMany / 2 * 3, "\x94")), {kMemory});
  cases.add("a name of ten million letters", cases.pickle().global("os", times(kMany, "x")),
            {"its pickle holds a name of more than 200 bytes"});
  cases.add("a number of a million bytes",
            cases.pickle().counted('\x8b', 4, 1'000'000, times(1'000'000, "\x55")),
            {"an integer of 1000000 bytes exceeds the limit"});
}

// Each level refers to the level below ten times. All of them stay on the stack.
std::string levels(uint64_t count, std::string_view begin, std::string_view end, bool keys = false,
                   std::string bytes = "NNN\x87") {
  bytes += std::string("q\0", 2);
  for (uint64_t i = 0; i < count; ++i) {
    bytes += begin;
    for (uint64_t item = 0; item < 10; ++item) {
      if (keys) bytes += "K" + little(item, 1);
      bytes += "h" + little(i, 1);
    }
    bytes += std::string(end) + "q" + little(i + 1, 1);
  }
  return bytes;
}

void repetition(HostilePickles& cases) {
  const std::string values = "it holds more than 10000000 values (max_values)";
  const auto add = [&](const char* name, const std::string& all) {
    cases.add(name, cases.pickle(4).raw("(").raw(all).raw("t"), {values});
    cases.add(std::string(name) + " as a key", cases.pickle(4).raw("}(").raw(all).raw("tNs"), {values});
  };
  add("a billion laughs in tuples", levels(30, "(", "t"));
  add("a billion laughs in lists", levels(30, "](", "e"));
  add("a billion laughs in dicts", levels(30, "}(", "u", true));
  const auto repeat = [&](const char* name, const Pickle& what, size_t count) {
    cases.add(name,
              cases.pickle()
                  .raw("(")
                  .raw(what.bytes())
                  .put(0)
                  .raw(times(count, std::string_view("h\0", 2)))
                  .raw("t"),
              {"its strings exceed 50331648 bytes together (max_pickle_bytes)"});
  };
  repeat("a megabyte of text, a hundred thousand times", Pickle(-1).text(times(1 << 20, "x")), 100'000);
  repeat("a megabyte of bytes, a hundred thousand times",
         Pickle(-1).counted('B', 4, 1 << 20, times(1 << 20, "x")), 100'000);
  repeat("a long number, a million times", Pickle(-1).counted('\x8a', 1, 255, times(255, "\x55")), 1'000'000);
  const auto tensor = Pickle(-1, cases.pickle().format()).tensor().bytes();
  add("ten million mentions of a tensor", levels(7, "(", "t", false, tensor));
  cases.add("nine million values before a bad tensor",
            nine_million_values(cases.pickle()).tensor({.offset = 1}).raw("t"),
            {"a tensor reaches element 6 of storage \"0\", which has 6"});
}

}  // namespace

Pickle nine_million_values(Pickle pickle) {
  return pickle.raw("(").raw(levels(5, "](", "e")).raw(times(20, "h\5"));
}

std::vector<HostileFile> hostile_sizes(Format format) {
  HostilePickles cases(format);
  claims(cases);
  depth(cases);
  numbers(cases);
  repetition(cases);
  return cases.take();
}

// Containers that contain themselves, keys that cannot be hashed, and allowed functions with wrong arguments.
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
