#include <cstring>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/files/torch_file.h>

#include "files/dtypes.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/memory_meter.h"

using namespace attentive;
using attentive::test::read_bytes;
using attentive::test::write_bytes;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Dict = FileValue::Dict;
using List = FileValue::List;

namespace {

const std::string kTorchFiles = test::source_folder() + "/tests/files/data/";

// Saves a value and loads it again.
FileValue again(const FileValue& value, const TorchFileOptions& options = {}) {
  const TemporaryFolder folder;
  save_torch(folder / "file.pt", value);
  return load_torch(folder / "file.pt", options);
}

at::Tensor tensor(const FileValue& value, std::string_view key) {
  return value.at(key).as<at::Tensor>();
}

// Compares dtype, geometry and all bytes of the storage.
bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.storage_offset() == b.storage_offset() && a.requires_grad() == b.requires_grad() &&
         a.storage().nbytes() == b.storage().nbytes() &&
         (a.storage().nbytes() == 0 ||
          std::memcmp(a.storage().data(), b.storage().data(), a.storage().nbytes()) == 0);
}

std::string message_of(const std::function<void()>& call) {
  return test::error_of<TorchFileError>(call);
}

std::string save_error(const FileValue& value) {
  const TemporaryFolder folder;
  const auto message = message_of([&] { save_torch(folder / "file.pt", value); });
  CHECK(::access((folder / "file.pt").c_str(), F_OK) != 0);
  return message;
}

FileValue nested(int depth) {
  FileValue value = List{};
  for (int i = 1; i < depth; ++i) value = List{{std::move(value)}};
  return value;
}

}  // namespace

TEST_CASE("plain values are saved and loaded", "[torch_file]") {
  const FileValue value = Dict{{{"none", FileValue()},
                                {"yes", true},
                                {"no", false},
                                {"text", "größe \xF0\x9F\x98\x80 \""},
                                {"empty", ""},
                                {"lr", 3e-4},
                                {"infinite", -std::numeric_limits<double>::infinity()},
                                {"complex", std::complex<double>(1, -2)},
                                {"bytes", FileValue::Bytes{std::string("\0\x7F\x80\xFF", 4)}},
                                {"no bytes", FileValue::Bytes{}},
                                {"large", FileValue::Integer{"-1180591620717411303424"}},
                                {"dtype", at::kBFloat16},
                                {"device", c10::Device("cuda:1")},
                                {"some device", c10::Device("mps")},
                                {"layout", at::kStrided},
                                {"set", FileValue::Set{{1, "a"}}},
                                {"tuple", FileValue::Tuple{{1, 2, 3, 4}}},
                                {"empty list", List{}},
                                {"ordered", Dict{{{"b", 1}, {"a", 2}}, true}},
                                {3, FileValue::Tuple{{List{{Dict{}}}}}}}};
  const auto got = again(value);
  CHECK(got.kind() == "dict");
  CHECK(got.at("none").is<FileValue::None>());
  CHECK(got.at("yes").as<bool>());
  CHECK_FALSE(got.at("no").as<bool>());
  CHECK(got.at("text").as<std::string>() == "größe \xF0\x9F\x98\x80 \"");
  CHECK(got.at("empty").as<std::string>().empty());
  CHECK(got.at("lr").as<double>() == 3e-4);
  CHECK(got.at("infinite").as<double>() == -std::numeric_limits<double>::infinity());
  CHECK(got.at("complex").as<std::complex<double>>() == std::complex<double>(1, -2));
  CHECK(got.at("bytes").as<FileValue::Bytes>().bytes == std::string("\0\x7F\x80\xFF", 4));
  CHECK(got.at("no bytes").as<FileValue::Bytes>().bytes.empty());
  CHECK(got.at("large").as<FileValue::Integer>().digits == "-1180591620717411303424");
  CHECK(got.at("dtype").as<at::ScalarType>() == at::kBFloat16);
  CHECK(got.at("device").as<c10::Device>() == c10::Device("cuda:1"));
  CHECK(got.at("some device").as<c10::Device>() == c10::Device("mps"));
  CHECK(got.at("layout").as<at::Layout>() == at::kStrided);
  CHECK(got.at("set").as<FileValue::Set>().items.size() == 2);
  CHECK(got.at("tuple").as<FileValue::Tuple>().items[3].as<int64_t>() == 4);
  CHECK(got.at("empty list").as<List>().items.empty());
  CHECK(got.at("ordered").kind() == "OrderedDict");
  CHECK(got.at("ordered").as<Dict>().items[0].first.as<std::string>() == "b");
  const auto& last = got.as<Dict>().items.back();
  CHECK(last.first.as<int64_t>() == 3);
  CHECK(last.second.as<FileValue::Tuple>().items[0].as<List>().items[0].kind() == "dict");
}

TEST_CASE("integers of every length are saved and loaded", "[torch_file]") {
  List numbers;
  for (int shift = 0; shift < 63; ++shift) {
    for (const int64_t step : {-1, 0, 1}) {
      numbers.items.emplace_back((int64_t{1} << shift) + step);
      numbers.items.emplace_back(-(int64_t{1} << shift) + step);
    }
  }
  numbers.items.emplace_back(std::numeric_limits<int64_t>::max());
  numbers.items.emplace_back(std::numeric_limits<int64_t>::min());
  const auto got = again(numbers).as<List>().items;
  REQUIRE(got.size() == numbers.items.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].as<int64_t>() == numbers.items[i].as<int64_t>());
}

TEST_CASE("tensors of every dtype are saved and loaded", "[torch_file]") {
  for (int number = 0; number < static_cast<int>(at::ScalarType::NumOptions); ++number) {
    const auto type = static_cast<at::ScalarType>(number);
    const auto* dtype = find_torch_dtype(type);
    if (dtype == nullptr || !dtype->tensors) continue;
    INFO(dtype->name);
    auto bytes = at::ones({static_cast<int64_t>(6 * c10::elementSize(type))}, at::kByte);
    const auto want = at::empty({0}, type).set_(bytes.storage(), 1, {2, 2}, {3, 1});
    for (const bool map : {false, true}) {
      const auto got = again(want, {.map = map});
      CHECK(same_bytes(got.as<at::Tensor>(), want));
    }
    CHECK(again(type).as<at::ScalarType>() == type);
  }
}

TEST_CASE("strides, offsets and flags of a tensor are kept", "[torch_file]") {
  const auto base = at::arange(24, at::kFloat).view({4, 6});
  const auto check = [](const at::Tensor& want) {
    const auto got = again(want).as<at::Tensor>();
    CHECK(same_bytes(got, want));
    CHECK(got.is_conj() == want.is_conj());
    CHECK(got.is_neg() == want.is_neg());
  };
  check(base.t());
  check(base.slice(0, 1, 3).slice(1, 2, 6, 2));
  check(base.select(1, 3));
  check(base[2][3]);                                // no dimensions
  check(at::ones({1}).expand({3, 1'000'000'000}));  // more elements than the storage has
  check(at::empty({0, 3}));
  check(at::empty({0}, at::kLong));
  const auto complex = at::complex(base, base);
  check(complex.conj());
  check(complex.conj().t());
  check(at::ones({2}).requires_grad_());
}

TEST_CASE("an integer tensor cannot require a gradient, in either direction", "[torch_file][errors]") {
  CHECK_THAT(save_error(FileValue::Parameter{at::ones({1}, at::kLong), true}),
             ContainsSubstring("a parameter of dtype Long cannot require a gradient"));
  CHECK_FALSE(
      again(FileValue::Parameter{at::ones({1}, at::kLong), false}).as<FileValue::Parameter>().requires_grad);
}

TEST_CASE("what was shared is shared", "[torch_file]") {
  const auto base = at::arange(24, at::kFloat);
  const FileValue::Parameter tied{at::ones({2, 2}), true};
  const FileValue value = Dict{{{"view", base.view({4, 6})},
                                {"row", base.slice(0, 6, 12)},
                                {"again", base},
                                {"same", base},
                                {"other", base.clone()},
                                {"encoder", tied},
                                {"decoder", tied},
                                {"frozen", FileValue::Parameter{tied.data, false}}}};
  for (const bool map : {false, true}) {
    const auto got = again(value, {.map = map});
    const auto* storage = tensor(got, "view").storage().unsafeGetStorageImpl();
    CHECK(tensor(got, "row").storage().unsafeGetStorageImpl() == storage);
    CHECK(tensor(got, "again").is_same(tensor(got, "same")));
    CHECK_FALSE(tensor(got, "other").storage().unsafeGetStorageImpl() == storage);
    tensor(got, "view")[1][0] = 100.0;
    CHECK(tensor(got, "row")[0].item<float>() == 100.0F);
    CHECK(tensor(got, "other")[6].item<float>() == 6.0F);
    const auto encoder = got.at("encoder").as<FileValue::Parameter>();
    CHECK(encoder.requires_grad);
    CHECK_FALSE(encoder.data.requires_grad());
    CHECK(encoder.data.is_same(got.at("decoder").as<FileValue::Parameter>().data));
    CHECK(encoder.data.is_same(got.at("frozen").as<FileValue::Parameter>().data));
    CHECK_FALSE(got.at("frozen").as<FileValue::Parameter>().requires_grad);
  }
}

TEST_CASE("a storage is written once", "[torch_file]") {
  const TemporaryFolder folder;
  const auto large = at::ones({100'000});
  save_torch(folder / "one", List{{large}});
  save_torch(folder / "many", List{{large, large.view({100, 1000}), large.slice(0, 3)}});
  CHECK(read_bytes(folder / "many").size() < read_bytes(folder / "one").size() + 1000);
}

TEST_CASE("a state dict is saved as an OrderedDict of tensors without gradients", "[torch_file]") {
  const TemporaryFolder folder;
  const auto weight = at::ones({2, 3}).requires_grad_();
  const std::map<std::string, at::Tensor> state = {{"weight", weight}, {"bias", at::zeros({2})}};
  save_torch(folder / "state.pt", state);
  const auto got = load_torch(folder / "state.pt");
  CHECK(got.kind() == "OrderedDict");
  REQUIRE(got.as<Dict>().items.size() == 2);
  CHECK(got.as<Dict>().items[0].first.as<std::string>() == "bias");
  CHECK(same_bytes(tensor(got, "weight"), weight.detach()));
}

TEST_CASE("the bytes of a file depend on its content alone", "[torch_file]") {
  const TemporaryFolder folder;
  const auto make = [] {
    return FileValue(
        Dict{{{"b", at::arange(5)}, {"a", List{{1, 2.5, "x", at::ones({3}).to(at::kFloat8_e5m2)}}}}});
  };
  save_torch(folder / "one", make());
  save_torch(folder / "two", make());
  const bool equal = read_bytes(folder / "one") == read_bytes(folder / "two");
  CHECK(equal);
}

TEST_CASE("the bytes are those that PyTorch was seen to read", "[torch_file]") {
  // tests/files/data/saved_by_attentive.pt: python tests/files/data/make_data.py --check reads it with
  // torch.load.
  const TemporaryFolder folder;
  const auto base = at::arange(12, at::kFloat).view({3, 4});
  const FileValue::Parameter weight{at::arange(4, at::kDouble), true};
  save_torch(
      folder / "file.pt",
      Dict{{{"model", Dict{{{"weight", weight}, {"tied", weight}, {"view", base.t()}, {"base", base}}, true}},
            {"epoch", 3},
            {"lr", 0.1},
            {"name", "größe \xF0\x9F\x98\x80"},
            {"big", FileValue::Integer{"1180591620717411303424"}},
            {"negative", -70'000},
            {"shape", FileValue::Tuple{{1, 2, 3, 300}}},
            {"bytes", FileValue::Bytes{std::string("\0\xFF", 2)}},
            {"set", FileValue::Set{{"a"}}},
            {"complex", std::complex<double>(1, 2)},
            {"dtype", at::kHalf},
            {"device", c10::Device("cuda:0")},
            {"layout", at::kStrided},
            {"float8", at::ones({2}).to(at::kFloat8_e4m3fn)},
            {"uint16", at::ones({2}).to(at::kUInt16)},
            {"conj", at::complex(base, base).conj()},
            {"bool", at::ones({2}, at::kBool)},
            {"empty", at::empty({0, 3})},
            {"none", FileValue()}}});
  const bool equal = read_bytes(folder / "file.pt") == read_bytes(kTorchFiles + "saved_by_attentive.pt");
  CHECK(equal);
}

TEST_CASE("what Python could not read again is not saved", "[torch_file][errors]") {
  const auto place = [](const FileValue& value) { return save_error(Dict{{{"a", List{{1, value}}}}}); };
  CHECK_THAT(place(at::Tensor()), ContainsSubstring("[\"a\"][1]: an undefined tensor"));
  CHECK_THAT(place(at::ones({2}).to_sparse()), ContainsSubstring("[\"a\"][1]: a tensor that is not dense"));
  CHECK_THAT(place(at::empty({2}, at::kMeta)), ContainsSubstring("without data"));
  CHECK_THAT(place(at::quantize_per_tensor(at::ones({2}), 1.0, 0, at::kQInt8)),
             ContainsSubstring("quantized"));
  CHECK_THAT(place(at::kQInt8), ContainsSubstring("dtype QInt8 is not written here"));
  CHECK_THAT(place(at::Layout::Sparse), ContainsSubstring("a layout other than strided"));
  CHECK_THAT(place(FileValue::Integer{"1e3"}), ContainsSubstring("expected decimal digits"));
  CHECK_THAT(place(FileValue::Integer{std::string(700, '9')}), ContainsSubstring("at most 255 bytes"));
  CHECK_THAT(place("\xFF"), ContainsSubstring("not UTF-8"));
  CHECK_THAT(place(Dict{{{"x", 1}, {"x", 2}}}), ContainsSubstring("holds the key \"x\" twice"));
  CHECK_THAT(place(Dict{{{List{}, 1}}}), ContainsSubstring("a key of a dict is a list"));
  CHECK_THAT(place(FileValue::Set{{1, true}}), ContainsSubstring("twice"));
  const auto ten_bytes = at::zeros({10}, at::kByte);
  CHECK_THAT(place(ten_bytes.slice(0, 0, 8).view(at::kFloat)),
             ContainsSubstring("a storage of 10 bytes, which is not a multiple of 4"));
  const auto shared = at::ones({4}, at::kInt);
  CHECK_THAT(place(List{{shared, shared.view(at::kFloat)}}),
             ContainsSubstring("shares its storage with one of another dtype"));
}

TEST_CASE("values are saved to a depth", "[torch_file][errors]") {
  const TemporaryFolder folder;
  save_torch(folder / "deep.pt", nested(1000));
  CHECK_NOTHROW(load_torch(folder / "deep.pt", {.limits = {.max_depth = 1000}}));
  CHECK_THAT(message_of([&] { load_torch(folder / "deep.pt"); }), ContainsSubstring("(max_depth)"));
  CHECK_THAT(save_error(nested(1001)), ContainsSubstring("nested deeper than 1000"));
}

TEST_CASE("an error of saving leaves the earlier file, and names its path", "[torch_file][errors]") {
  const TemporaryFolder folder;
  save_torch(folder / "file.pt", 1);
  CHECK_THROWS_AS(save_torch(folder / "file.pt", at::Tensor()), TorchFileError);
  CHECK(load_torch(folder / "file.pt").as<int64_t>() == 1);
  CHECK_THAT(message_of([&] { save_torch(folder / "none" / "file.pt", 1); }),
             ContainsSubstring("save_torch: " + (folder / "none" / "file.pt").string() + ": "));
  // Saves onto the file from which it was loaded.
  const auto mapped = load_torch(kTorchFiles + "plain_dict.pt");
  write_bytes(folder / "state.pt", read_bytes(kTorchFiles + "plain_dict.pt"));
  const auto state = load_torch(folder / "state.pt", {.map = true});
  save_torch(folder / "state.pt", state);
  CHECK(same_bytes(tensor(load_torch(folder / "state.pt"), "mask"), tensor(mapped, "mask")));
}

TEST_CASE("mapped tensors are private, and live as long as one of them", "[torch_file]") {
  const TemporaryFolder folder;
  save_torch(folder / "file.pt", Dict{{{"a", at::arange(1000)}, {"b", at::arange(1000)}}});
  const auto before = read_bytes(folder / "file.pt");
  at::Tensor kept;
  {
    const auto value = load_torch(folder / "file.pt", {.map = true});
    tensor(value, "a").fill_(7);
    kept = tensor(value, "b");
  }
  const bool unchanged = read_bytes(folder / "file.pt") == before;
  CHECK(unchanged);
  ::unlink((folder / "file.pt").c_str());
  CHECK(kept.equal(at::arange(1000)));
  CHECK(kept.fill_(3).sum().item<int64_t>() == 3000);
}

TEST_CASE("mapped tensors are mapped, owned ones are owned", "[torch_file]") {
  const TemporaryFolder folder;
  save_torch(folder / "file.pt", at::arange(1000));
  const auto mapped = load_torch(folder / "file.pt", {.map = true}).as<at::Tensor>();
  CHECK(mapped.storage().allocator() == nullptr);
  CHECK_FALSE(mapped.storage().unsafeGetStorageImpl()->resizable());
  auto owned = load_torch(folder / "file.pt").as<at::Tensor>();
  CHECK(owned.storage().unsafeGetStorageImpl()->resizable());
  CHECK_NOTHROW(owned.resize_({2000}));
}

TEST_CASE("what lies unaligned in a file is copied", "[torch_file]") {
  // In the old format, storages are not aligned.
  for (const auto& [key, value] : load_torch(kTorchFiles + "legacy.pt", {.map = true}).as<Dict>().items) {
    INFO(key.as<std::string>());
    const auto address = reinterpret_cast<uintptr_t>(value.as<at::Tensor>().const_data_ptr());
    CHECK(address % alignof(float) == 0);
    CHECK(same_bytes(value.as<at::Tensor>(),
                     tensor(load_torch(kTorchFiles + "legacy.pt"), key.as<std::string>())));
  }
}

TEST_CASE("checksums are compared unless they are not wanted", "[torch_file][errors]") {
  const TemporaryFolder folder;
  save_torch(folder / "file.pt", at::zeros({100}, at::kByte));
  auto bytes = read_bytes(folder / "file.pt");
  bytes[bytes.find(std::string(100, '\0')) + 50] = 1;
  write_bytes(folder / "file.pt", bytes);
  for (const bool map : {false, true}) {
    CHECK_THAT(message_of([&] { load_torch(folder / "file.pt", {.map = map}); }),
               ContainsSubstring("storage \"0\" is damaged: its CRC-32 is"));
    const auto value = load_torch(folder / "file.pt", {.map = map, .checksums = false});
    CHECK(value.as<at::Tensor>().sum().item<int64_t>() == 1);
  }
}

TEST_CASE("a bool is 0 or 1", "[torch_file][errors]") {
  const TemporaryFolder folder;
  save_torch(folder / "file.pt", at::ones({100}, at::kBool));
  auto bytes = read_bytes(folder / "file.pt");
  bytes[bytes.find(std::string(100, '\1')) + 50] = 2;
  write_bytes(folder / "file.pt", bytes);
  for (const bool map : {false, true}) {
    CHECK_THAT(message_of([&] { load_torch(folder / "file.pt", {.map = map, .checksums = false}); }),
               ContainsSubstring("a byte other than 0 and 1"));
  }
}

TEST_CASE("limits that say nothing are refused", "[torch_file][errors]") {
  CHECK_THROWS_MATCHES(
      load_torch("none", {.limits = {.max_depth = 1001}}), c10::ValueError,
      MessageMatches(ContainsSubstring("expected limits.max_depth from 1 to 1000, got 1001")));
  CHECK_THROWS_MATCHES(parse_torch("", 0, {.map = true}), c10::ValueError,
                       MessageMatches(ContainsSubstring("expected map = false")));
}

TEST_CASE("a storage beyond 4 GiB", "[.large]") {
  const TemporaryFolder folder;
  auto large = at::zeros({(int64_t{1} << 32) + 100}, at::kByte);
  large[-1] = 9;
  save_torch(folder / "file.pt", List{{large, at::ones({3}), at::ones({5})}});
  const auto got = load_torch(folder / "file.pt", {.map = true}).as<List>().items;
  CHECK(got[0].as<at::Tensor>().numel() == large.numel());
  CHECK(got[0].as<at::Tensor>()[-1].item<int64_t>() == 9);
  CHECK(got[2].as<at::Tensor>().equal(at::ones({5})));
}

TEST_CASE("a loaded file takes its own memory once, a mapped one that of nothing", "[torch_file][memory]") {
  if (const auto reason = test::why_no_peak_memory()) SKIP(*reason);
  constexpr size_t kMegabyte = size_t{1} << 20;
  const TemporaryFolder folder;
  const auto path = folder / "file.pt";
  save_torch(path,
             std::map<std::string, at::Tensor>{{"a", at::ones({40, 1 << 18})}, {"b", at::ones({1 << 18})}});
  const auto file = std::filesystem::file_size(path);
  REQUIRE(file > 41 * kMegabyte);
  CHECK(test::peak_memory([&] { load_torch(path); }) < file + 6 * kMegabyte);
  CHECK(test::peak_memory([&] { load_torch(path, {.map = true, .checksums = false}); }) < 6 * kMegabyte);
}
