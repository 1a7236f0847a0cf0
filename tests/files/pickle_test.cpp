#include "files/torch/pickle.h"

#include <string>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "base/refusal.h"

using namespace attentive;
using namespace std::string_literals;
using attentive::pickle::bytes_of;
using attentive::pickle::decimal_of;
using Catch::Matchers::ContainsSubstring;

// Tests pickles opcode by opcode, without a file around them.

namespace {

const std::string kProto = "\x80\x02";

FileValue unpickle(const std::string& bytes, const TorchFileLimits& limits = {}) {
  const ByteSource source(bytes.data(), bytes.size());
  pickle::PickleInput input(source, 0, bytes.size(), limits.max_pickle_bytes);
  MemoryBudget budget(limits.max_pickle_bytes);
  pickle::Graph graph(budget);
  const auto root = pickle::Unpickler(input, graph, {}).load();
  check_values(graph, input, root, limits);
  return build_value(graph, input, root, {});
}

std::string refusal_of_pickle(const std::string& bytes, const TorchFileLimits& limits = {}) {
  try {
    return "accepted: "s + std::string(unpickle(bytes, limits).kind());
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
}

// Reads opcodes and returns the value that they leave.
FileValue value_of(const std::string& opcodes) {
  return unpickle(kProto + opcodes + '.');
}

std::string refused(const std::string& opcodes, const TorchFileLimits& limits = {}) {
  return refusal_of_pickle(kProto + opcodes + '.', limits);
}

std::string text(const std::string& utf8) {
  return "\x8C"s + static_cast<char>(utf8.size()) + utf8;
}

std::string repeat(size_t count, const std::string& text) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

std::string global(const std::string& module, const std::string& name) {
  return 'c' + module + '\n' + name + '\n';
}

const std::vector<FileValue>& list(const FileValue& value) {
  return value.as<FileValue::List>().items;
}

}  // namespace

TEST_CASE("numbers of a pickle", "[pickle]") {
  CHECK(value_of("N").is<FileValue::None>());
  CHECK(value_of("\x88").as<bool>());
  CHECK_FALSE(value_of("\x89").as<bool>());
  CHECK(value_of("K\xFF").as<int64_t>() == 255);
  CHECK(value_of("M\xFF\xFF").as<int64_t>() == 65535);
  CHECK(value_of("J\xFE\xFF\xFF\xFF").as<int64_t>() == -2);
  CHECK(value_of("G\x3F\xF8"s + std::string(6, '\0')).as<double>() == 1.5);
  CHECK(value_of("\x8A\x00"s).as<int64_t>() == 0);
  CHECK(value_of("\x8A\x01\xFF"s).as<int64_t>() == -1);
  CHECK(value_of("\x8A\x08"s + std::string(7, '\0') + '\x80').as<int64_t>() == INT64_MIN);
  CHECK(value_of("\x8B\x02\x00\x00\x00\x00\x01"s).as<int64_t>() == 256);
  // Nine bytes for a number that eight could hold, and then a value that needs all nine.
  CHECK(value_of("\x8A\x09"s + std::string(8, '\xFF') + '\xFF').as<int64_t>() == -1);
  CHECK(value_of("\x8A\x09"s + std::string(8, '\xFF') + '\0').as<FileValue::Integer>().digits ==
        "18446744073709551615");
  CHECK(value_of("\x8A\x09"s + std::string(8, '\0') + '\xFF').as<FileValue::Integer>().digits ==
        "-18446744073709551616");
}

TEST_CASE("an integer has a longest form", "[pickle][errors]") {
  CHECK(value_of("\x8B\x00\x04\x00\x00"s + std::string(1024, '\x7F')).is<FileValue::Integer>());
  CHECK_THAT(refused("\x8B\x01\x04\x00\x00"s + std::string(1025, '\x7F')),
             ContainsSubstring("exceeds the limit"));
  CHECK_THAT(refused("\x8B\xFF\xFF\xFF\xFF"s), ContainsSubstring("exceeds the limit"));
}

TEST_CASE("strings and bytes of a pickle", "[pickle]") {
  CHECK(value_of("X\x02\x00\x00\x00hi"s).as<std::string>() == "hi");
  CHECK(value_of("\x8C\x04\xF0\x9F\x98\x80").as<std::string>() == "\xF0\x9F\x98\x80");
  CHECK(value_of("\x8D\x02\x00\x00\x00\x00\x00\x00\x00hi"s).as<std::string>() == "hi");
  CHECK(value_of("U\x02hi").as<std::string>() == "hi");
  CHECK(value_of("T\x02\x00\x00\x00hi"s).as<std::string>() == "hi");
  CHECK(value_of("C\x02\x00\xFF"s).as<FileValue::Bytes>().bytes == "\x00\xFF"s);
  CHECK(value_of("B\x01\x00\x00\x00\xFF"s).as<FileValue::Bytes>().bytes == "\xFF");
  CHECK(value_of("\x8E\x01\x00\x00\x00\x00\x00\x00\x00\xFF"s).as<FileValue::Bytes>().bytes == "\xFF");
  CHECK(value_of("\x96\x01\x00\x00\x00\x00\x00\x00\x00\xFF"s).as<FileValue::Bytes>().bytes == "\xFF");
  const auto encode = global("_codecs", "encode");
  CHECK(
      value_of(encode + text("a\xC2\x80\xC3\xBF") + text("latin1") + "\x86R").as<FileValue::Bytes>().bytes ==
      "a\x80\xFF");
  CHECK(value_of(global("__builtin__", "bytes") + ")R").as<FileValue::Bytes>().bytes.empty());
  CHECK(value_of(global("__builtin__", "bytearray") + text("\xC3\xA9") + text("latin-1") + "\x86R")
            .as<FileValue::Bytes>()
            .bytes == "\xE9");
  CHECK_THAT(refused("\x8C\x01\xFF"), ContainsSubstring("not UTF-8"));
  CHECK_THAT(refused("U\x01\xFF"), ContainsSubstring("not UTF-8"));
  CHECK_THAT(refused("\x8C\x03\xED\xA0\x80"), ContainsSubstring("not UTF-8"));  // a surrogate
  CHECK_THAT(refused(encode + text("\xC4\x80") + text("latin1") + "\x86R"),
             ContainsSubstring("beyond U+00FF"));
  CHECK_THAT(refused(encode + text("a") + text("rot13") + "\x86R"), ContainsSubstring("encoding \"rot13\""));
}

TEST_CASE("containers of a pickle", "[pickle]") {
  CHECK(list(value_of("]")).empty());
  const auto appended = value_of(
      "]K\x01"
      "a(K\x02K\x03"
      "e");
  REQUIRE(list(appended).size() == 3);
  for (int i = 0; i < 3; ++i) CHECK(list(appended)[static_cast<size_t>(i)].as<int64_t>() == i + 1);
  CHECK(value_of(")").as<FileValue::Tuple>().items.empty());
  CHECK(value_of("K\x01K\x02K\x03\x87").as<FileValue::Tuple>().items.size() == 3);
  CHECK(value_of("(K\x01K\x02K\x03K\x04t").as<FileValue::Tuple>().items.size() == 4);
  CHECK(value_of("\x8F(K\x01K\x02\x90").as<FileValue::Set>().items.size() == 2);
  CHECK(value_of("(K\x01\x91").as<FileValue::Set>().items.size() == 1);
  const auto dict = value_of("}" + text("a") + "K\x01s(" + text("b") + "K\x02u");
  CHECK(dict.kind() == "dict");
  CHECK(dict.at("a").as<int64_t>() == 1);
  CHECK(dict.at("b").as<int64_t>() == 2);
  const auto ordered = value_of(global("collections", "OrderedDict") + ")R" + text("a") + "K\x01s}b");
  CHECK(ordered.kind() == "OrderedDict");
  CHECK(ordered.at("a").as<int64_t>() == 1);
  CHECK_THAT(refused("}(K\1u"), ContainsSubstring("a key without a value"));
  CHECK_THAT(refused("}K\x01"
                     "a"),
             ContainsSubstring("into a value that is a dict"));
  CHECK_THAT(refused("NK\x01"
                     "a"),
             ContainsSubstring("into a value that is None"));
  CHECK_THAT(refused(")}b"), ContainsSubstring("a state for a value that is a tuple"));
}

TEST_CASE("a value in two places is one value, and grows in both", "[pickle]") {
  const auto both = value_of(
      "](]q\0h\0eh\0K\x07"
      "a\x86"s);  // ([l, l], l), then l.append(7)
  const auto& inner = list(both.as<FileValue::Tuple>().items[0]);
  REQUIRE(inner.size() == 2);
  for (const auto& value : inner) {
    REQUIRE(list(value).size() == 1);
    CHECK(list(value)[0].as<int64_t>() == 7);
  }
}

TEST_CASE("a list grows in pieces, whatever comes between", "[pickle]") {
  const auto value = value_of("]q\0(K\0K\1e]q\1(K\5K\6eh\0(K\2K\3eh\1K\7ah\0h\1\x86\x86\x86\x86\x86"s);
  std::vector<int64_t> numbers;
  const auto* rest = &value.as<FileValue::Tuple>().items;
  for (const auto& item : list((*rest)[0])) numbers.push_back(item.as<int64_t>());
  CHECK(numbers == std::vector<int64_t>{0, 1, 2, 3});
}

TEST_CASE("the memo gives what was put, and nothing else", "[pickle][errors]") {
  CHECK(value_of("K\x05\x94K\x06\x94h\0\x87"s).as<FileValue::Tuple>().items[2].as<int64_t>() == 5);
  // Memo indices from 1.
  CHECK(value_of("K\x05q\1h\1\x86"s).as<FileValue::Tuple>().items[1].as<int64_t>() == 5);
  CHECK(value_of("K\x05r\0\0\0\0j\0\0\0\0\x86"s).as<FileValue::Tuple>().items[1].as<int64_t>() == 5);
  CHECK_THAT(refused("h\0"s), ContainsSubstring("memo entry 0 does not exist"));
  CHECK_THAT(refused("K\x05q\1h\0"s), ContainsSubstring("memo entry 0 does not exist"));
  CHECK_THAT(refused("Nq\0h\1"s), ContainsSubstring("memo entry 1 does not exist"));
  CHECK_THAT(refused("Nq\2"s), ContainsSubstring("memo entry 2 follows entry 0"));
  CHECK_THAT(refused("Nq\0q\2"s), ContainsSubstring("memo entry 2 follows entry 1"));
  CHECK_THAT(refused("Nr\xFF\xFF\xFF\xFF"s), ContainsSubstring("memo entry 4294967295"));
  CHECK_THAT(refused("q\0"s), ContainsSubstring("more from its stack than is there"));
}

TEST_CASE("nothing is taken from below the stack or a mark", "[pickle][errors]") {
  for (const auto& opcodes :
       {"\x85"s, "N\x86"s, "NN\x87"s, "a"s,       "]a"s,    "Ns"s,    "}Ns"s,   "N(\x85"s,
        "](a"s,  "](Na"s,  "(e"s,     "(u"s,      "(\x90"s, "b"s,     "R"s,     "(NR"s,
        "\x93"s, "NN(R"s,  "N}(b"s,   "NN(\x93"s, "N(Q"s,   "N(q\0"s, "N(\x94"s}) {
    INFO(opcodes);
    CHECK_THAT(refused(opcodes), ContainsSubstring("more from its stack than is there"));
  }
  for (const auto& opcodes : {"t"s, "]e"s, "}u"s, "\x8F\x90"s, "\x91"s}) {
    CHECK_THAT(refused(opcodes), ContainsSubstring("a mark that is not there"));
  }
}

TEST_CASE("a pickle leaves one value", "[pickle][errors]") {
  CHECK_THAT(refused(""), ContainsSubstring("one value at its end, got 0"));
  CHECK_THAT(refused("NN"), ContainsSubstring("one value at its end, got 2"));
  CHECK_THAT(refused("N("), ContainsSubstring("one value at its end"));
}

TEST_CASE("protocols 2 to 5 and the opcodes of their values are read", "[pickle][errors]") {
  for (const char protocol : {'\2', '\3', '\4', '\5'}) {
    CHECK(refusal_of_pickle("\x80"s + protocol + "N.") == "accepted: None");
  }
  CHECK_THAT(refusal_of_pickle("\x80\1N."), ContainsSubstring("expected protocol 2 to 5, got 1"));
  CHECK_THAT(refusal_of_pickle("\x80\6N."), ContainsSubstring("expected protocol 2 to 5, got 6"));
  CHECK_THAT(refusal_of_pickle("N."), ContainsSubstring("a pickle of protocol 2 to 5, got none"));
  for (const auto& opcodes :
       {"I01\n"s, "(lp0\n"s, "0"s, "N2"s, "P1\n"s, "\x92"s, "\x97"s, "\x82\1"s, "(i"s, "\x80\2"s, "\xFF"s}) {
    INFO(opcodes);
    CHECK_THAT(refused(opcodes), ContainsSubstring("is not read here"));
  }
  CHECK(value_of("\x95\2\0\0\0\0\0\0\0N"s).is<FileValue::None>());
  CHECK_THAT(refused("\x95\x03\0\0\0\0\0\0\0N"s), ContainsSubstring("a frame beyond its end"));
}

TEST_CASE("a pickle that ends too early says where", "[pickle][errors]") {
  const auto whole = kProto + "](X\x02\0\0\0hiK\1G\0\0\0\0\0\0\0\0\x8A\2\0\1e."s;
  CHECK(refusal_of_pickle(whole) == "accepted: list");
  for (size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    REQUIRE_THAT(refusal_of_pickle(whole.substr(0, size)), ContainsSubstring("its pickle is truncated"));
  }
  CHECK_THAT(refused("X\xFF\xFF\xFF\xFF"),
             ContainsSubstring("4294967295 bytes are needed at byte 7, 1 are left"));
  CHECK_THAT(refused("\x8E\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
             ContainsSubstring("18446744073709551615 bytes are needed"));
}

TEST_CASE("only what is on the list is called", "[pickle][errors]") {
  CHECK_THAT(refused(global("os", "system") + text("true") + "\x85R"), ContainsSubstring("\"os.system\""));
  CHECK_THAT(refused(text("os") + text("system") + "\x93"), ContainsSubstring("\"os.system\""));
  CHECK_THAT(refused(global("collections", "OrderedDict\"")), ContainsSubstring("not one of the classes"));
  CHECK_THAT(refused(global("os", "OrderedDict")), ContainsSubstring("\"os.OrderedDict\""));
  CHECK_THAT(refused("c" + std::string(300, 'm') + "\nn\n"),
             ContainsSubstring("a name of more than 200 bytes"));
  CHECK_THAT(refused("N)R"), ContainsSubstring("it calls a value that is None"));
  CHECK_THAT(refused(global("collections", "OrderedDict") + "NR"),
             ContainsSubstring("arguments that are None"));
  CHECK_THAT(refused(global("collections", "OrderedDict") + "NNN\x87R"), ContainsSubstring("of 3 arguments"));
  CHECK_THAT(refused(global("torch", "Tensor") + ")R"), ContainsSubstring("not a function here"));
  // NEWOBJ, which torch.save does not write for these classes.
  CHECK_THAT(refused(global("collections", "OrderedDict") + ")\x81"), ContainsSubstring("opcode 0x81"));
  CHECK_THAT(refused(global("collections", "OrderedDict")),
             ContainsSubstring("a class or function as a value"));
  CHECK(value_of(global("collections", "OrderedDict") + ")R").kind() == "OrderedDict");
  CHECK(value_of(text("builtins") + text("set") + "\x93](K\1e\x85R").is<FileValue::Set>());
  CHECK(value_of(global("collections", "Counter") + "}" + text("a") + "K\2s\x85R").at("a").as<int64_t>() ==
        2);
  CHECK(value_of(global("builtins", "complex") + "G\x3F\xF0\0\0\0\0\0\0G\0\0\0\0\0\0\0\0\x86R"s)
            .as<std::complex<double>>() == 1.0);
}

TEST_CASE("values of torch that are no tensors", "[pickle]") {
  CHECK(value_of(global("torch", "bfloat16")).as<at::ScalarType>() == at::kBFloat16);
  CHECK(value_of(global("torch", "Size") + "K\1K\2\x86\x85R").as<FileValue::Tuple>().items.size() == 2);
  CHECK(value_of(global("torch", "device") + text("cuda") + "K\1\x86R").as<c10::Device>() ==
        c10::Device("cuda:1"));
  CHECK(value_of(global("torch", "device") + text("mps") + "\x85R").as<c10::Device>() == c10::Device("mps"));
  CHECK(value_of(global("torch.serialization", "_get_layout") + text("torch.strided") + "\x85R")
            .as<at::Layout>() == at::kStrided);
  CHECK_THAT(refused(global("torch", "device") + text("moon") + "\x85R"),
             ContainsSubstring("no device type \"moon\""));
  CHECK_THAT(refused(global("torch", "device") + text("cuda:0") + "\x85R"),
             ContainsSubstring("has an index"));
  CHECK_THAT(refused(global("torch", "device") + text("cuda") + "M\xFF\1\x86R"),
             ContainsSubstring("cannot have index 511"));
  CHECK_THAT(refused(global("torch", "Size") + "N\x85\x85R"), ContainsSubstring("an item of a torch.Size"));
  CHECK_THAT(refused(global("torch.serialization", "_get_layout") + text("torch.sparse_coo") + "\x85R"),
             ContainsSubstring("torch.sparse_coo"));
  CHECK_THAT(refused(global("torch", "qint8")), ContainsSubstring("a quantized dtype"));
  CHECK_THAT(refused(global("torch._utils", "_rebuild_qtensor")), ContainsSubstring("a quantized tensor"));
  CHECK_THAT(refused("NQ"), ContainsSubstring("a tensor where none is allowed"));
}

TEST_CASE("a container that contains itself is refused", "[pickle][errors]") {
  CHECK_THAT(refused("]q\0h\0a"s), ContainsSubstring("a list that contains itself"));
  CHECK_THAT(refused("]q\0h\0\x85"
                     "a"s),
             ContainsSubstring("contains itself"));
  CHECK_THAT(refused("}q\0K\1h\0s"s), ContainsSubstring("a dict that contains itself"));
  // A list that occurs twice does not contain itself.
  CHECK(refused("]q\0h\0\x86"s) == "accepted: tuple");
}

TEST_CASE("containers nest to a depth", "[pickle][errors]") {
  const auto nested = [](size_t depth) { return repeat(depth - 1, "]") + "]" + repeat(depth - 1, "a"); };
  CHECK(refused(nested(100)) == "accepted: list");
  CHECK_THAT(refused(nested(101)), ContainsSubstring("more than 100 deep (max_depth)"));
  CHECK_THAT(refused(repeat(500'000, "]") + repeat(499'999, "a")), ContainsSubstring("(max_depth)"));
  CHECK_THAT(refused("N" + repeat(500'000, "\x85")), ContainsSubstring("(max_depth)"));
  // A shared value counts at its greatest depth.
  const auto shared = "](" + nested(60) + "q\0"s + repeat(40, "]") + "h\0"s + repeat(40, "a") + "e";
  CHECK_THAT(refused(shared), ContainsSubstring("(max_depth)"));
  CHECK(refused(shared, {.max_depth = 101}) == "accepted: list");
}

TEST_CASE("values and strings that are shared count every time", "[pickle][errors]") {
  // Each level holds the level below ten times.
  std::string bomb = "]";
  for (char level = 0; level < 9; ++level) bomb += "q"s + level + "](" + repeat(10, "h"s + level) + "e";
  CHECK_THAT(refused("(" + bomb + "t"), ContainsSubstring("more than 10000000 values (max_values)"));
  const auto three = "](K\1K\1K\1e"s;
  CHECK(refused(three, {.max_values = 4}) == "accepted: list");
  CHECK_THAT(refused(three, {.max_values = 3}), ContainsSubstring("(max_values)"));
  const auto texts = "X\xE8\3\0\0"s + std::string(1000, 'x') + "q\0]("s + repeat(9, "h\0"s) + "e\x86";
  CHECK(refused(texts, {.max_pickle_bytes = 10'000}) == "accepted: tuple");
  CHECK_THAT(refused(texts, {.max_pickle_bytes = 9'999}), ContainsSubstring("its strings exceed 9999 bytes"));
}

TEST_CASE("the memory of a description has a limit", "[pickle][errors]") {
  const TorchFileLimits limits{.max_pickle_bytes = 100'000};
  CHECK_THAT(refused("(" + repeat(50'000, "N") + "t", limits),
             ContainsSubstring("takes more than 100000 bytes of memory"));
  CHECK_THAT(refused("(" + repeat(50'000, "("), limits),
             ContainsSubstring("takes more than 100000 bytes of memory"));
  CHECK_THAT(refused(repeat(10'000, "]"), limits),
             ContainsSubstring("takes more than 100000 bytes of memory"));
  CHECK_THAT(refused("X\xA0\x86\1\0"s + std::string(100'000, 'x'), limits),
             ContainsSubstring("the limit of 100000 bytes"));
  // A few opcodes that repeatedly copy a long list.
  const auto list = "](" + repeat(5'000, "K\1") + "eq\0"s;
  CHECK_THAT(refused(list + repeat(10, global("builtins", "set") + "h\0\x85R"s), limits),
             ContainsSubstring("takes more than 100000 bytes of memory"));
}

TEST_CASE("keys can be hashed, and are distinct", "[pickle][errors]") {
  const auto keys = [](const std::string& a, const std::string& b) {
    return refused("}(" + a + "N" + b + "Nu");
  };
  const std::string one_half = "G\x3F\xE0\0\0\0\0\0\0"s, one = "G\x3F\xF0\0\0\0\0\0\0"s;
  CHECK_THAT(keys(text("a"), text("a")), ContainsSubstring("a dict holds the key \"a\" twice"));
  CHECK_THAT(keys("K\1", "\x8A\1\1"), ContainsSubstring("the key 1 twice"));
  CHECK_THAT(keys("K\1", "\x88"), ContainsSubstring("twice"));
  CHECK_THAT(keys("K\1", one), ContainsSubstring("twice"));
  CHECK_THAT(keys(one_half, one_half), ContainsSubstring("the key 0.5 twice"));
  CHECK_THAT(keys("N", "N"), ContainsSubstring("twice"));
  CHECK_THAT(keys("K\1K\2\x86", "K\1K\2\x86"), ContainsSubstring("twice"));
  CHECK_THAT(keys("C\1a", "C\1a"), ContainsSubstring("twice"));
  for (const auto& [a, b] : std::vector<std::pair<std::string, std::string>>{{text("a"), text("b")},
                                                                             {text("a"), "C\1a"},
                                                                             {"K\1", one_half},
                                                                             {"K\1", text("1")},
                                                                             {"N", "\x89"},
                                                                             {"K\1K\2\x86", "K\1\x85"},
                                                                             {"K\1K\2\x86", "K\2K\1\x86"},
                                                                             {"K\1", "K\1\x85"},
                                                                             {")", "N"}}) {
    INFO(a << " " << b);
    CHECK(keys(a, b) == "accepted: dict");
  }
  for (const auto* key : {"]", "}", "\x8F"}) {
    CHECK_THAT(keys(key, "N"), ContainsSubstring("a key of a dict is a"));
  }
  CHECK_THAT(keys("]\x85", "N"), ContainsSubstring("a tuple that holds a list"));
  CHECK_THAT(refused("\x8F(K\1K\1\x90"), ContainsSubstring("a set holds the key 1 twice"));
  CHECK_THAT(refused("\x8F(]\x90"), ContainsSubstring("a key of a set is a list"));
}

namespace {

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

}  // namespace

TEST_CASE("integers in two's complement are written in decimal", "[big_integer]") {
  CHECK(decimal_of("") == "0");
  CHECK(decimal_of(bytes({0})) == "0");
  CHECK(decimal_of(bytes({0xFF})) == "-1");
  CHECK(decimal_of(bytes({0xFF, 0})) == "255");
  CHECK(decimal_of(bytes({0, 0, 0, 0, 0, 0, 0, 0x80})) == "-9223372036854775808");
  CHECK(decimal_of(bytes({0, 0, 0, 0, 0, 0, 0, 0x80, 0})) == "9223372036854775808");
  CHECK(decimal_of(bytes({0, 0, 0, 0, 0, 0, 0, 0, 0x40})) == "1180591620717411303424");
  CHECK(decimal_of(bytes({0, 0xCA, 0x9A, 0x3B, 0})) == "1000000000");
}

TEST_CASE("decimal digits become the shortest two's complement", "[big_integer]") {
  CHECK(bytes_of("0", 8) == bytes({0}));
  CHECK(bytes_of("-1", 8) == bytes({0xFF}));
  CHECK(bytes_of("127", 8) == bytes({0x7F}));
  CHECK(bytes_of("128", 8) == bytes({0x80, 0}));
  CHECK(bytes_of("-128", 8) == bytes({0x80}));
  CHECK(bytes_of("-129", 8) == bytes({0x7F, 0xFF}));
  CHECK(bytes_of("1180591620717411303424", 9) == bytes({0, 0, 0, 0, 0, 0, 0, 0, 0x40}));
  CHECK(bytes_of("-00018446744073709551616", 9) == bytes({0, 0, 0, 0, 0, 0, 0, 0, 0xFF}));
  for (const auto* digits : {"98765432109876543210987654321", "-340282366920938463463374607431768211456"}) {
    CHECK(decimal_of(bytes_of(digits, 64)) == digits);
  }
}

TEST_CASE("what is no integer, or too long a one, has no bytes", "[big_integer]") {
  for (const auto* text : {"", "-", "+1", "1e3", " 1", "0x10"}) CHECK(bytes_of(text, 8).empty());
  CHECK(bytes_of("128", 1).empty());
  CHECK(bytes_of(std::string(1000, '9'), 8).empty());
}
