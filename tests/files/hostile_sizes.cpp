#include "files/hostile_torch_file.h"

// Files that try to cost more than their size: false claims, depth, numbers of objects, repetition.

namespace attentive::test {
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

}  // namespace attentive::test
