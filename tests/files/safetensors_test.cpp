#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <sys/stat.h>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/files/safetensors.h>

#include "base/refusal.h"
#include "files/mapped_file.h"
#include "support/files.h"

using attentive::load_safetensors;
using attentive::parse_safetensors;
using attentive::SafetensorsError;
using attentive::test::read_bytes;
using attentive::test::write_bytes;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

const std::string kFixture = attentive::test::source_folder() + "/tests/files/data/from_python.safetensors";

// A file with this header, unchanged, and this many zero bytes of data.
std::string file_bytes(const std::string& header, size_t data_size = 0) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + std::string(data_size, '\0');
}

attentive::SafetensorsFile parse(const std::string& bytes) {
  return parse_safetensors(bytes.data(), bytes.size());
}

void check_refused(const std::string& header, size_t data_size, const std::string& reason) {
  INFO(attentive::quoted_name(header));
  CHECK_THROWS_MATCHES(parse(file_bytes(header, data_size)), SafetensorsError,
                       MessageMatches(ContainsSubstring("parse_safetensors: " + reason)));
}

bool same(const at::Tensor& left, const at::Tensor& right) {
  return left.scalar_type() == right.scalar_type() && left.sizes() == right.sizes() && left.equal(right);
}

}  // namespace

TEST_CASE("a file of the Python package is read", "[safetensors]") {
  const auto file = load_safetensors(kFixture);
  CHECK(file.metadata.at("written by") == "safetensors 0.8.0");
  CHECK(file.tensors.size() == 19);
  const auto& t = file.tensors;
  CHECK(same(t.at("h.f16"), at::tensor({1.5, -2.0, 0.25}).to(at::kHalf)));
  CHECK(same(t.at("b.bf16"), at::tensor({1.5, -2.0}).to(at::kBFloat16).view({2, 1})));
  CHECK(same(t.at("i64"), at::tensor({int64_t{-1}, int64_t{1} << 40})));
  CHECK(same(t.at("i32"), at::tensor({-7, 8}, at::kInt)));
  CHECK(same(t.at("i16"), at::tensor({-300}, at::kShort)));
  CHECK(same(t.at("i8"), at::tensor({-3, 4, 5}, at::kChar)));
  CHECK(same(t.at("u8"), at::tensor({0, 255}, at::kByte)));
  CHECK(same(t.at("bool"), at::tensor({1, 0, 1}).to(at::kBool)));
  CHECK(same(t.at("scalar"), at::scalar_tensor(3.25f)));
  CHECK(t.at("scalar").dim() == 0);
  CHECK(same(t.at("empty"), at::empty({0, 4})));
  CHECK(same(t.at("gr\xc3\xb6\xc3\x9f"
                  "e \"q\"\n"),
             at::tensor({7.0f})));
  CHECK(t.at("u16").scalar_type() == at::kUInt16);
  CHECK(t.at("u32").to(at::kLong).item<int64_t>() == (int64_t{1} << 31) + 5);
  CHECK(t.at("u64").const_data_ptr<uint64_t>()[0] == uint64_t{1} << 63);
  CHECK(t.at("f8").to(at::kFloat).item<float>() == 1.5f);
  CHECK(t.at("f85").to(at::kFloat).item<float>() == 1.5f);
  CHECK(t.at("c64").item<c10::complex<float>>() == c10::complex<float>(1, 2));
  CHECK(t.at("w.f32").sizes() == at::IntArrayRef({2, 3}));
  CHECK(t.at("a.f64").scalar_type() == at::kDouble);
}

TEST_CASE("saving what the Python package wrote gives the same bytes", "[safetensors]") {
  const TemporaryFolder folder;
  const auto file = load_safetensors(kFixture);
  attentive::save_safetensors(folder / "again", file.tensors, file.metadata);
  CHECK(read_bytes(folder / "again") == read_bytes(kFixture));
}

TEST_CASE("rare 8-bit dtypes of the Python package are read, and written as it writes them",
          "[safetensors]") {
  const TemporaryFolder folder;
  const auto path = attentive::test::source_folder() + "/tests/files/data/rare_dtypes.safetensors";
  for (const bool map : {false, true}) {
    const auto tensors = load_safetensors(path, {.map = map}).tensors;
    CHECK(tensors.at("e8m0").scalar_type() == at::kFloat8_e8m0fnu);
    CHECK(tensors.at("e4m3fnuz").scalar_type() == at::kFloat8_e4m3fnuz);
    CHECK(tensors.at("e5m2fnuz").scalar_type() == at::kFloat8_e5m2fnuz);
    for (const auto& [name, tensor] : tensors)
      CHECK(same(tensor.to(at::kFloat), at::tensor({0.5f, 1.0f, 2.0f}).unsqueeze(0)));
    attentive::save_safetensors(folder / "again", tensors);
    CHECK(read_bytes(folder / "again") == read_bytes(path));
  }
}

TEST_CASE("4-bit numbers are read where LibTorch has them, two a byte", "[safetensors]") {
  const auto path = attentive::test::source_folder() + "/tests/files/data/float4.safetensors";
  const auto entry = [](const std::string& shape) {
    return R"({"a":{"dtype":"F4","shape":)" + shape + R"(,"data_offsets":[0,2]}})";
  };
#if __has_include(<c10/util/Float4_e2m1fn_x2.h>)
  const TemporaryFolder folder;
  const auto tensor = load_safetensors(path).tensors.at("f4");
  CHECK(tensor.scalar_type() == at::kFloat4_e2m1fn_x2);
  CHECK(tensor.view(at::kByte).equal(at::arange(8, at::kByte).view({2, 4})));
  attentive::save_safetensors(folder / "again", {{"f4", tensor}});
  CHECK(read_bytes(folder / "again") == read_bytes(path));
  attentive::save_safetensors(folder / "again", {{"f4", tensor.t()}});
  CHECK(load_safetensors(folder / "again")
            .tensors.at("f4")
            .view(at::kByte)
            .equal(at::arange(8, at::kByte).view({2, 4}).t()));
  CHECK(parse(file_bytes(entry("[2,2]"), 2)).tensors.at("a").sizes() == at::IntArrayRef({2, 1}));
  check_refused(entry("[4,1]"), 2, "tensor \"a\": dtype F4 needs an even last size, got shape (4, 1)");
  check_refused(entry("[]"), 2, "tensor \"a\": dtype F4 needs an even last size, got shape ()");
  check_refused(entry("[2]"), 2, "tensor \"a\": dtype F4 and shape (1,) take 1 bytes");
#else
  CHECK_THROWS_MATCHES(
      load_safetensors(path), SafetensorsError,
      MessageMatches(ContainsSubstring("tensor \"f4\": dtype F4 needs LibTorch 2.8 or newer, which has "
                                       "float4_e2m1fn_x2; this is 2.")));
  check_refused(entry("[4]"), 2, "tensor \"a\": dtype F4 needs LibTorch 2.8 or newer");
#endif
  check_refused(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3,
                "tensor \"a\": dtype F6_E2M3, which no LibTorch has");
}

TEST_CASE("values that only bits can tell apart survive", "[safetensors]") {
  const TemporaryFolder folder;
  const float inf = std::numeric_limits<float>::infinity();
  attentive::save_safetensors(folder / "f", {{"x", at::tensor({std::nanf(""), inf, -inf, -0.0f, 1e-45f})}});
  const auto x = load_safetensors(folder / "f").tensors.at("x");
  const auto* values = x.const_data_ptr<float>();
  CHECK(std::isnan(values[0]));
  CHECK(values[1] == inf);
  CHECK(values[2] == -inf);
  CHECK(std::signbit(values[3]));
  CHECK(values[4] == 1e-45f);
}

TEST_CASE("strided, expanded and lazily conjugated tensors are saved by value", "[safetensors]") {
  const TemporaryFolder folder;
  const auto base = at::arange(6, at::kFloat).view({2, 3});
  const auto complex = at::tensor({c10::complex<float>(1, 2)});
  attentive::save_safetensors(folder / "f", {{"transposed", base.t()},
                                             {"expanded", at::ones({1}).expand({3})},
                                             {"sliced", base.slice(1, 0, 3, 2)},
                                             {"conj", complex.conj()},
                                             {"grad", at::ones({2}).requires_grad_()}});
  const auto t = load_safetensors(folder / "f").tensors;
  CHECK(same(t.at("transposed"), base.t()));
  CHECK(same(t.at("expanded"), at::ones({3})));
  CHECK(same(t.at("sliced"), base.slice(1, 0, 3, 2)));
  CHECK(t.at("conj").item<c10::complex<float>>() == c10::complex<float>(1, -2));
  CHECK_FALSE(t.at("grad").requires_grad());
}

TEST_CASE("a CUDA tensor is saved and comes back on the CPU", "[safetensors][cuda]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  const TemporaryFolder folder;
  attentive::save_safetensors(folder / "f", {{"x", at::arange(6, at::device(at::kCUDA)).view({2, 3}).t()}});
  CHECK(same(load_safetensors(folder / "f").tensors.at("x"), at::arange(6).view({2, 3}).t()));
}

TEST_CASE("an empty file, an empty header and a padded header", "[safetensors]") {
  CHECK(parse(file_bytes("{}")).tensors.empty());
  CHECK(parse(file_bytes("{}     ")).tensors.empty());
  CHECK(parse(file_bytes(R"({"__metadata__":{}})")).metadata.empty());
  CHECK_THROWS_AS(parse_safetensors(nullptr, 0), SafetensorsError);
  const TemporaryFolder folder;
  attentive::save_safetensors(folder / "f", {});
  CHECK(load_safetensors(folder / "f").tensors.empty());
}

TEST_CASE("loaded tensors own their memory", "[safetensors]") {
  const TemporaryFolder folder;
  attentive::save_safetensors(folder / "f", {{"x", at::arange(4)}});
  auto x = load_safetensors(folder / "f").tensors.at("x");
  write_bytes(folder / "f", "gone");
  x.add_(1);
  CHECK(same(x, at::arange(1, 5)));
}

TEST_CASE("tensors whose bytes are not aligned are read", "[safetensors]") {
  auto bytes = file_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                          R"("b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}})",
                          9);
  const double value = 2.5;
  std::memcpy(bytes.data() + bytes.size() - sizeof(value), &value, sizeof(value));
  CHECK(parse(bytes).tensors.at("b").item<double>() == 2.5);
}

TEST_CASE("a file cut at any byte is refused", "[safetensors][errors]") {
  const auto bytes = read_bytes(kFixture);
  for (size_t size = 0; size < bytes.size(); ++size) {
    INFO("cut to " << size << " bytes");
    // A copy of exactly this size lets the address sanitizer detect reads beyond it.
    const std::vector<char> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK_THROWS_AS(parse_safetensors(cut.data(), cut.size()), SafetensorsError);
  }
}

TEST_CASE("a header length beyond the limit or the file is refused", "[safetensors][errors]") {
  for (const uint64_t length : {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{100'000'001}}) {
    auto bytes = file_bytes("{}");
    std::memcpy(bytes.data(), &length, sizeof(length));
    CHECK_THROWS_MATCHES(parse(bytes), SafetensorsError,
                         MessageMatches(ContainsSubstring("limit of 100000000")));
  }
  for (const uint64_t length : {uint64_t{100'000'000}, uint64_t{3}}) {
    auto bytes = file_bytes("{}");
    std::memcpy(bytes.data(), &length, sizeof(length));
    CHECK_THROWS_MATCHES(parse(bytes), SafetensorsError,
                         MessageMatches(ContainsSubstring("does not fit into")));
  }
}

TEST_CASE("a header that is not UTF-8 is refused", "[safetensors][errors]") {
  for (const std::string bad :
       {"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"}) {
    check_refused("{\"" + bad + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
                  "the header is not UTF-8");
  }
}

TEST_CASE("a header that is not JSON is refused", "[safetensors][errors]") {
  check_refused("", 0, "the header does not begin with '{'");
  check_refused("[]", 0, "the header does not begin with '{'");
  check_refused(" {}", 0, "the header does not begin with '{'");
  check_refused("\xef\xbb\xbf{}", 0, "the header does not begin with '{'");
  check_refused("{", 0, "the header is not JSON");
  check_refused("{}x", 0, "the header is not JSON");
  check_refused("{}{}", 0, "the header is not JSON");
  check_refused("{/* */}", 0, "the header is not JSON");
  check_refused(R"({"a":})", 0, "the header is not JSON");
  check_refused(R"({"\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0, "the header is not JSON");
  check_refused(std::string("{}\0garbage", 10), 0, "the header holds a NUL byte");
}

TEST_CASE("deep JSON is refused without deep recursion", "[safetensors][errors]") {
  const size_t depth = 5'000'000;
  check_refused(R"({"a":)" + std::string(depth, '['), 0, "the value of \"a\" must be an object, got a list");
  check_refused(R"({"a":{"dtype":"U8","shape":)" + std::string(depth, '['), 0,
                "tensor \"a\": expected shape to be a list of non-negative integers, got a list");
  std::string objects = "{";
  for (size_t i = 0; i < depth; ++i) objects += "\"a\":{";
  check_refused(objects, 0, "tensor \"a\": unknown key \"a\"");
}

TEST_CASE("duplicate keys are refused", "[safetensors][errors]") {
  const std::string entry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  check_refused(R"({"a":)" + entry + R"(,"a":)" + entry + "}", 1, "tensor \"a\" comes twice");
  check_refused(R"({"a":)" + entry + R"(,"\u0061":)" + entry + "}", 1, "tensor \"a\" comes twice");
  check_refused(R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ comes twice");
  check_refused(R"({"__metadata__":{"k":"1","k":"1"}})", 0, "__metadata__ holds \"k\" twice");
  check_refused(R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1,
                "tensor \"a\": key \"shape\" comes twice");
}

TEST_CASE("metadata other than strings is refused", "[safetensors][errors]") {
  for (const std::string value : {"1", "-1", "1.5", "null", "true", "[]", "{}"}) {
    check_refused(R"({"__metadata__":{"k":)" + value + "}}", 0, "__metadata__ \"k\": expected a string, got");
  }
  check_refused(R"({"__metadata__":"x"})", 0,
                "the value of \"__metadata__\" must be an object, got a string");
}

TEST_CASE("missing, unknown and mistyped keys of an entry are refused", "[safetensors][errors]") {
  check_refused(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "tensor \"a\": no key \"dtype\"");
  check_refused(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "tensor \"a\": no key \"shape\"");
  check_refused(R"({"a":{"dtype":"U8","shape":[1]}})", 1, "tensor \"a\": no key \"data_offsets\"");
  check_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1,
                "tensor \"a\": unknown key \"x\"");
  check_refused(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,1]}})", 1,
                "tensor \"a\": unknown dtype \"F31\"");
  check_refused(R"({"a":{"dtype":4,"shape":[1],"data_offsets":[0,1]}})", 1,
                "tensor \"a\": expected dtype to be a string");
  check_refused(R"({"a":{"dtype":["U8"],"shape":[1],"data_offsets":[0,1]}})", 1,
                "tensor \"a\": expected dtype");
  for (const std::string size :
       {"-1", "-0", "1.0", "1e0", "null", "\"1\"", "true", "{}", "18446744073709551616"}) {
    check_refused(R"({"a":{"dtype":"U8","shape":[)" + size + R"(],"data_offsets":[0,1]}})", 1,
                  "tensor \"a\": expected shape to be a list of non-negative integers");
    check_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,)" + size + "]}}", 1,
                  "tensor \"a\": expected data_offsets to be two non-negative integers");
  }
  check_refused(R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1,
                "tensor \"a\": expected shape to be a list");
  for (const std::string offsets : {"[]", "[0]", "[0,1,2]"}) {
    check_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":)" + offsets + "}}", 1,
                  "tensor \"a\": data_offsets must hold 2 numbers");
  }
}

TEST_CASE("sizes that overflow are refused", "[safetensors][errors]") {
  const auto shaped = [](const std::string& shape) {
    return R"({"a":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[0,8]}})";
  };
  check_refused(shaped("2,18446744073709551614"), 8,
                "tensor \"a\": size 18446744073709551614 in its shape is too large");
  check_refused(shaped("2,9223372036854775807"), 8, "tensor \"a\": its shape overflows");
  check_refused(shaped("4611686018427387904"), 8, "tensor \"a\": its shape overflows");
  check_refused(shaped("4294967296,4294967296"), 8, "tensor \"a\": its shape overflows");
  check_refused(shaped("0,4611686018427387904,4611686018427387904"), 8, "tensor \"a\": its shape overflows");
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  check_refused(shaped(ones), 8, "tensor \"a\": its shape has more than 64 sizes");
}

TEST_CASE("byte ranges that do not tile the data are refused", "[safetensors][errors]") {
  const auto bytes = [](const std::string& name, size_t begin, size_t end) {
    return "\"" + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(end - begin) +
           R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
  };
  check_refused("{" + bytes("a", 0, 4) + "," + bytes("b", 2, 6) + "}", 6,
                "tensor \"b\" overlaps another tensor");
  check_refused("{" + bytes("a", 0, 4) + "," + bytes("b", 0, 4) + "}", 4,
                "tensor \"b\" overlaps another tensor");
  check_refused("{" + bytes("a", 0, 4) + "," + bytes("b", 2, 2) + "}", 4,
                "tensor \"b\" overlaps another tensor");
  check_refused("{" + bytes("a", 0, 4) + "," + bytes("b", 6, 8) + "}", 8,
                "a hole of 2 bytes before tensor \"b\"");
  check_refused("{" + bytes("a", 1, 4) + "}", 4, "a hole of 1 bytes before tensor \"a\"");
  check_refused("{" + bytes("a", 0, 4) + "}", 6, "2 trailing bytes after the last tensor");
  check_refused("{}", 3, "3 trailing bytes after the last tensor");
  check_refused("{" + bytes("a", 0, 4) + "}", 3,
                "tensor \"a\": its data end at byte 4, but the file holds 3 bytes");
  check_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[4,3]}})", 4,
                "tensor \"a\": data_offsets [4, 3] end before");
  check_refused(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})", 20,
                "tensor \"a\": dtype F32 and shape (2, 3) take 24 bytes, data_offsets [0, 20] hold 20");
}

TEST_CASE("a bool other than 0 and 1 is refused", "[safetensors][errors]") {
  auto bytes = file_bytes(R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2);
  bytes.back() = 1;
  CHECK(parse(bytes).tensors.at("a").any().item<bool>());
  bytes.back() = 2;
  CHECK_THROWS_MATCHES(
      parse(bytes), SafetensorsError,
      MessageMatches(ContainsSubstring("tensor \"a\": dtype BOOL holds a byte other than 0 and 1")));
}

TEST_CASE("files that cannot be read are named with the reason", "[safetensors][errors]") {
  const TemporaryFolder folder;
  CHECK_THROWS_MATCHES(load_safetensors(folder / "none"), SafetensorsError,
                       MessageMatches(ContainsSubstring("load_safetensors: " + (folder / "none").string() +
                                                        ": cannot open it: No such file")));
  CHECK_THROWS_MATCHES(load_safetensors(folder.path()), SafetensorsError,
                       MessageMatches(ContainsSubstring("not a regular file")));
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_MATCHES(load_safetensors(folder / "pipe"), SafetensorsError,
                       MessageMatches(ContainsSubstring("not a regular file")));
  write_bytes(folder / "empty", "");
  CHECK_THROWS_MATCHES(load_safetensors(folder / "empty"), SafetensorsError,
                       MessageMatches(ContainsSubstring("0 bytes are too few")));
  write_bytes(folder / "text", "this is no safetensors file");
  CHECK_THROWS_MATCHES(load_safetensors(folder / "text"), c10::ValueError,
                       MessageMatches(ContainsSubstring("longer than the format's limit")));
}

TEST_CASE("what cannot be saved is refused by name", "[safetensors][errors]") {
  const TemporaryFolder folder;
  const auto check = [&](const std::map<std::string, at::Tensor>& tensors, const std::string& reason) {
    CHECK_THROWS_MATCHES(
        attentive::save_safetensors(folder / "f", tensors), SafetensorsError,
        MessageMatches(ContainsSubstring("save_safetensors: " + (folder / "f").string() + ": " + reason)));
    CHECK_FALSE(std::filesystem::exists(folder / "f"));
  };
  check({{"a", at::Tensor()}}, "tensor \"a\" is undefined");
  check({{"a", at::empty({2}, at::kMeta)}}, "tensor \"a\" has no data: it is on the meta device");
  check({{"a", at::ones({2, 2}).to_sparse()}}, "tensor \"a\" is not dense");
  check({{"a", at::zeros({1}, at::kComplexDouble)}},
        "tensor \"a\" has dtype ComplexDouble, which the format lacks");
  check({{"__metadata__", at::ones({1})}}, "tensor \"__metadata__\" has a reserved name");
  check({{"\xff", at::ones({1})}}, "tensor \"\xef\xbf\xbd\" has a name that is not UTF-8");
  CHECK_THROWS_MATCHES(attentive::save_safetensors(folder / "f", {}, {{"k", "\xff"}}), SafetensorsError,
                       MessageMatches(ContainsSubstring("metadata \"k\" is not UTF-8")));
}

TEST_CASE("names with quotes, newlines and NUL survive", "[safetensors]") {
  const TemporaryFolder folder;
  const std::string odd("a\"\\\n\t\0\x7f/\xe2\x82\xac", 11);
  attentive::save_safetensors(folder / "f", {{odd, at::ones({1})}, {"", at::ones({1})}}, {{odd, odd}});
  const auto file = load_safetensors(folder / "f");
  CHECK(file.tensors.count(odd) == 1);
  CHECK(file.tensors.count("") == 1);
  CHECK(file.metadata.at(odd) == odd);
}

namespace {

// A file whose data begin at a multiple of 8 bytes or not, depending on `padding`.
std::string two_tensors(size_t padding) {
  std::string header = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BOOL",)"
                       R"("shape":[3],"data_offsets":[24,27]}})";
  header.append((8 - header.size() % 8) % 8 + padding, ' ');
  auto bytes = file_bytes(header, 27);
  const float numbers[6] = {1, 2, 3, 4, 5, 6};
  std::memcpy(bytes.data() + 8 + header.size(), numbers, sizeof(numbers));
  bytes[bytes.size() - 2] = 1;
  return bytes;
}

}  // namespace

TEST_CASE("mapped tensors are the file's, and writing to them leaves it as it is", "[safetensors][mapped]") {
  const TemporaryFolder folder;
  for (const size_t padding : {0, 1}) {  // aligned and not aligned
    const auto bytes = two_tensors(padding);
    write_bytes(folder / "f", bytes);
    auto tensors = load_safetensors(folder / "f", {.map = true}).tensors;
    const auto& a = tensors.at("a");
    CHECK(a.equal(at::arange(1, 7, at::kFloat).view({2, 3})));
    CHECK(tensors.at("b").equal(at::tensor({0, 1, 0}).to(at::kBool)));
    CHECK(reinterpret_cast<uintptr_t>(a.const_data_ptr()) % sizeof(float) == 0);
    a.add_(1);
    CHECK(a.equal(at::arange(2, 8, at::kFloat).view({2, 3})));
    CHECK(read_bytes(folder / "f") == bytes);
    CHECK(load_safetensors(folder / "f", {.map = true}).tensors.at("a").equal(a - 1));
    // The rename replaces the file; the old file lives as long as its tensors.
    attentive::save_safetensors(folder / "f", {{"a", a * 10}});
    CHECK(a.equal(at::arange(2, 8, at::kFloat).view({2, 3})));
  }
  auto bytes = two_tensors(0);
  bytes.back() = 2;
  write_bytes(folder / "f", bytes);
  CHECK_THROWS_MATCHES(load_safetensors(folder / "f", {.map = true}), SafetensorsError,
                       MessageMatches(ContainsSubstring("dtype BOOL holds a byte other than 0 and 1")));
  const auto owned = load_safetensors(kFixture).tensors,
             mapped = load_safetensors(kFixture, {.map = true}).tensors;
  CHECK(mapped.size() == owned.size());
  for (const auto& [name, tensor] : mapped) {
    const auto& other = owned.at(name);
    CHECK(tensor.sizes() == other.sizes());
    CHECK(tensor.scalar_type() == other.scalar_type());
    CHECK(std::memcmp(tensor.const_data_ptr(), other.const_data_ptr(), tensor.nbytes()) == 0);
  }
}

TEST_CASE("pages of a mapped tensor are given back, those of its neighbours are not",
          "[safetensors][mapped]") {
  const TemporaryFolder folder;
  const auto numbers = at::arange(3 * 5000, at::kFloat).view({3, 5000});
  attentive::save_safetensors(folder / "f", {{"a", numbers[0]}, {"b", numbers[1]}, {"c", numbers[2]}});
  const auto tensors = load_safetensors(folder / "f", {.map = true}).tensors;
  for (const auto& [name, tensor] : tensors) tensor.neg_();
  attentive::give_back_pages(tensors.at("b"));
  CHECK(tensors.at("a").equal(-numbers[0]));
  CHECK(tensors.at("c").equal(-numbers[2]));
  const auto& b = tensors.at("b");
  CHECK(b[2500].item<float>() == numbers[1][2500].item<float>());  // read from the file again
  attentive::give_back_pages(numbers);                             // owned memory is not affected
  CHECK(numbers[2][4999].item<float>() == 14999);
}
