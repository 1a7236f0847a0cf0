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

}  // namespace attentive::test
