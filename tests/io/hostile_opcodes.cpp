#include "io/hostile_torch_file.h"

// Opcodes that torch.save does not write, or where it does not write them.

namespace attentive::test {
namespace {

// Each opcode alone: on an empty stack, without its argument, or unknown.
void single_opcodes(HostilePickles& cases) {
  constexpr std::string_view kValues = "N]})\x88\x89\x8f";  // complete values by themselves
  for (int opcode = 0; opcode < 256; ++opcode) {
    const auto byte = static_cast<char>(opcode);
    if (kValues.find(byte) != std::string_view::npos) continue;
    cases.add("opcode " + std::to_string(opcode) + " alone", cases.pickle().op(byte, 0, 0), {});
  }
}

// What takes everything back to a MARK, without one; what takes fixed numbers of values, with a MARK among
// them.
void marks(HostilePickles& cases) {
  for (const char* opcode : {"t", "e", "u", "\x90", "\x91"}) {
    cases.add(std::string("no MARK for ") + opcode, cases.pickle(4).raw("]N").raw(opcode), {"mark"});
  }
  for (const char* opcode : {"\x85", "a", "s", "R", "b", "Q", "0", "q\1", "\x94", "."}) {
    cases.add(std::string("a MARK under ") + opcode, cases.pickle(4).raw("]N(").raw(opcode), {});
  }
  cases.add("BINPERSID of a value below a MARK", cases.pickle(4).raw("]N(Q"), {"more from its stack"});
  cases.add("a MARK between two values of a pair", cases.pickle().raw("N(N\x86"), {});
  cases.add("a MARK is left", cases.pickle().raw("(N"), {});
}

void stack(HostilePickles& cases) {
  cases.add("STOP on an empty stack", cases.pickle(), {"one value"});
  cases.add("two values are left", cases.pickle().raw("NN"), {"one value"});
  cases.add("a global is left", cases.pickle().global("torch", "Size"), {});
  cases.add("a storage is left", cases.pickle().storage({}), {"storage"});
  cases.add("POP of the only value", cases.pickle().raw("N0"), {});
  cases.add("POP", cases.pickle().raw("NN0"), {"opcode"});
  cases.add("POP_MARK", cases.pickle().raw("N(N1"), {"opcode"});
  cases.add("DUP", cases.pickle().raw("N2\x86"), {"opcode"});
}

void memo(HostilePickles& cases) {
  cases.add("GET of nothing", cases.pickle().raw("h\5"), {"memo"});
  cases.add("LONG_BINGET of nothing", cases.pickle().op('j', 0x80000000, 4), {"memo"});
  cases.add("GET of the next", cases.pickle().raw("Nq").raw(std::string_view("\0h\1\x86", 4)), {"memo"});
  cases.add("PUT at 2^31", cases.pickle().raw("N").op('r', 0x80000000, 4), {"memo"});
  cases.add("PUT at 2^32 - 1", cases.pickle().raw("N").op('r', 0xffffffff, 4), {"memo"});
  cases.add("PUT of nothing", cases.pickle().put(0).raw("N"), {"stack"});
  cases.add("MEMOIZE of nothing", cases.pickle(4).raw("\x94N"), {"stack"});
}

void protocols(HostilePickles& cases) {
  cases.add("protocol 0", Pickle(-1).raw("N"), {"protocol"});
  cases.add("protocol 0 said", cases.pickle(0).raw("N"), {"protocol"});
  cases.add("protocol 1", cases.pickle(1).raw("N"), {"protocol"});
  cases.add("protocol 6", cases.pickle(6).raw("N"), {"protocol"});
  cases.add("protocol 255", cases.pickle(255).raw("N"), {"protocol"});
  cases.add("PROTO twice", cases.pickle().op('\x80', 2, 1).raw("N"), {"opcode 0x80"});
  cases.add_whole("an empty pickle", Pickle(-1), {});
  cases.add_whole("no STOP", cases.pickle().raw("N"), {});
  cases.add("a second pickle", cases.pickle().raw("N.").raw("\x80\2N"), {});
  cases.add("a byte behind STOP", cases.pickle().raw("N."), {});
}

void text_opcodes(HostilePickles& cases) {
  for (const char* opcode :
       {"I1\n", "I01\n", "L1L\n", "F1.5\n", "S'x'\n", "Vx\n", "(lp0\n", "(dp0\n", "Np0\ng0\n\x86"}) {
    cases.add(std::string("protocol 0: ") + opcode, cases.pickle().raw(opcode), {"opcode"});
  }
  cases.add("PERSID", cases.pickle().raw("Pstorage\n"), {"opcode"});
  cases.add("INST", cases.pickle().raw("(ios\nsystem\n"), {"opcode"});
  cases.add("OBJ", cases.pickle().raw("(").global("collections", "OrderedDict").raw("o"), {"opcode"});
  for (int width : {1, 2, 4}) {
    const auto opcode = static_cast<char>(width == 1 ? '\x82' : width == 2 ? '\x83' : '\x84');
    cases.add("EXT" + std::to_string(width), cases.pickle().op(opcode, 1, static_cast<size_t>(width)),
              {"opcode"});
  }
  cases.add("NEXT_BUFFER", cases.pickle(5).raw("\x97"), {"opcode"});
  cases.add("READONLY_BUFFER", cases.pickle(5).raw("N\x98"), {"opcode"});
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
  cases.add("an empty name", call("", ""), {"refers to"});
  cases.add("not called", cases.pickle().global("os", "system"), {"os.system"});
  cases.add("in a list that is popped", cases.pickle().raw("N").global("os", "system").raw("0"),
            {"os.system"});
  cases.add("no end of the name", cases.pickle().raw("cos\nsystem"), {});
  cases.add("no UTF-8", cases.pickle().global("os", "\xff"), {"os."});
  cases.add("escape sequences", call("\x1b[2J", "\r\x7f\u009b2J"), {"refers to"});
  cases.add("STACK_GLOBAL os.system", cases.pickle(4).text("os").text("system").raw("\x93"), {"os.system"});
  cases.add("STACK_GLOBAL of integers", cases.pickle(4).integer(1).integer(2).raw("\x93"), {"global"});
  cases.add("STACK_GLOBAL of a list", cases.pickle(4).raw("]").text("system").raw("\x93"), {"global"});
  cases.add("STACK_GLOBAL of one string", cases.pickle(4).text("os").raw("\x93"), {"stack"});
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
