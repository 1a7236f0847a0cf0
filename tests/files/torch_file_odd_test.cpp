// Files that this version of torch.save does not write but that are valid: older files, and files that look
// hostile.

#include <algorithm>
#include <dirent.h>
#include <fstream>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <torch/version.h>

#include <attentive/files/torch_file.h>

#include "files/dtypes.h"
#include "files/file_value_truth.h"
#include "files/hostile_torch_file.h"
#include "support/files.h"

using namespace attentive;
using namespace attentive::test;
using namespace std::string_literals;
using nlohmann::json;

namespace {

FileValue read(const Pickle& pickle) {
  return parse_bytes(file_of(pickle.format(), pickle.stop()));
}

// Checks that files in both formats give this value.
void check_reads(const std::function<Pickle(Pickle)>& make, const json& want) {
  for (const auto format : {Format::Zip, Format::Legacy}) {
    CHECK(truth_of(read(make(Pickle(2, format)))) == want);
  }
}

json tuple(json items) {
  return {{"tuple", std::move(items)}};
}

}  // namespace

TEST_CASE("a file that states no checksum at all is read without", "[torch_file][odd]") {
  auto file = good_archive();
  for (auto& entry : file.entries) entry.crc = 0;
  for (const bool checksums : {true, false}) {
    const auto bytes = file.bytes();
    const auto value = parse_torch(bytes.data(), bytes.size(), {.checksums = checksums});
    CHECK(value.as<at::Tensor>().sum().item<float>() == 15);
  }
}

TEST_CASE("the files that the hostile ones are made of are read", "[torch_file][odd]") {
  const auto check = [](const std::string& bytes) {
    const auto tensor = parse_bytes(bytes).as<at::Tensor>();
    REQUIRE(tensor.sizes() == at::IntArrayRef({2, 3}));
    for (int i = 0; i < 6; ++i) CHECK(tensor.const_data_ptr<float>()[i] == static_cast<float>(i));
  };
  check(good_archive().bytes());
  check(legacy_of(Pickle(2, Format::Legacy).tensor().stop()).bytes());
  check(with_zip64(good_archive()).bytes());
  auto wide = with_zip64(good_archive());
  wide.count = 0xffff, wide.directory_size = wide.directory_offset = 0xffffffff;
  check(wide.bytes());
  for (const size_t width : {4, 8}) {  // data descriptors with 32-bit and 64-bit sizes
    auto described = good_archive();
    for (auto& entry : described.entries) {
      entry.flags = 8, entry.local_crc = 0, entry.local_size = entry.local_packed = 0;
      entry.behind = "PK\7\10" + little(crc32_of(entry.data), 4) + little(entry.data.size(), width) +
                     little(entry.data.size(), width);
    }
    check(described.bytes());
  }
  auto huge = good_archive();
  for (auto& entry : huge.entries) {
    entry.extra = little(1, 2) + little(16, 2) + little(entry.data.size(), 8) + little(entry.data.size(), 8);
    entry.size = entry.packed = 0xffffffff;
    entry.local_extra = entry.extra;
  }
  check(huge.bytes());
}

TEST_CASE("strings of Python 2 are text", "[torch_file][odd]") {
  const auto make = [](Pickle pickle) {
    return pickle.counted('U', 1, 1, "a").counted('T', 4, 2, "bc").raw("\x86");
  };
  check_reads(make, tuple({"a", "bc"}));
}

TEST_CASE("a memo may begin with 1", "[torch_file][odd]") {
  check_reads([](Pickle pickle) { return pickle.raw("(K\1q\1K\2q\2h\1h\2t"); }, tuple({1, 2, 1, 2}));
}

TEST_CASE("an OrderedDict of a list of pairs", "[torch_file][odd]") {
  const auto want = json::parse(R"({"ordered_dict": [["b", 1], ["a", 2]]})");
  check_reads(
      [](Pickle pickle) {
        pickle.global("collections", "OrderedDict")
            .raw("](](")
            .text("b")
            .raw("K\1e](")
            .text("a")
            .raw("K\2ee");
        return pickle.raw("\x85R");
      },
      want);
}

// In Python, containers hold references.
TEST_CASE("a list that grows after it was put somewhere grows there", "[torch_file][odd]") {
  const json one = json::array({1});
  const json want = tuple(json::array({one, json::array({one}), one, tuple(json::array({one}))}));
  check_reads([](Pickle pickle) { return pickle.raw("(]q\0]h\0ah\0h\0\x85q\1"s).raw("K\2"s).raw("t"); },
              tuple(json::array({json::array(), json::array({json::array()}), json::array(),
                                 tuple(json::array({json::array()})), 2})));
  check_reads([](Pickle pickle) { return pickle.raw("(]q\0]h\0ah\0K\1ah\0\x85t"s); }, want);
}

TEST_CASE("a shared value in several containers comes in each", "[torch_file][odd]") {
  const auto shared = json::parse(R"({"dict": [["k", 1]]})");
  check_reads([](Pickle pickle) { return pickle.raw("(}q\0"s).text("k").raw("K\1sh\0h\0\x85t"s); },
              tuple(json::array({shared, shared, tuple(json::array({shared}))})));
}

TEST_CASE("a rebuild function of four arguments", "[torch_file][odd]") {
  for (const auto format : {Format::Zip, Format::Legacy}) {
    Pickle pickle(2, format);
    pickle.global("torch._utils", "_rebuild_tensor")
        .raw("(")
        .storage({})
        .integer(1)
        .tuple({2, 2})
        .tuple({2, 1})
        .raw("tR");
    const auto tensor = read(pickle).as<at::Tensor>();
    CHECK(tensor.storage_offset() == 1);
    CHECK(tensor.const_data_ptr<float>()[3] == 4);
    CHECK_FALSE(tensor.requires_grad());
  }
}

TEST_CASE("a view of a storage begins where it says", "[torch_file][odd]") {
  const auto view = [](Pickle& pickle, int64_t offset, std::vector<int64_t> sizes) {
    pickle.global("torch._utils", "_rebuild_tensor_v2")
        .raw("((")
        .text("storage")
        .global("torch", "FloatStorage");
    pickle.text("0").text("cpu").integer(6).raw("(").text("1").integer(2).integer(3).raw("ttQ").integer(
        offset);
    pickle.tuple(sizes).tuple(std::vector<int64_t>(sizes.size(), 1)).raw("\x89").hooks().raw("tR");
  };
  Pickle pickle(2, Format::Legacy);
  pickle.tensor();
  view(pickle, 1, {2});
  const auto value = read(pickle.raw("\x86"));
  const auto& items = value.as<FileValue::Tuple>().items;
  const auto &base = items[0].as<at::Tensor>(), &part = items[1].as<at::Tensor>();
  CHECK(part.storage().is_alias_of(base.storage()));
  CHECK(part.storage_offset() == 3);
  CHECK(part.const_data_ptr<float>()[1] == 4);

  Pickle beyond(2, Format::Legacy), nothing(2, Format::Legacy);
  view(beyond, 2, {2});
  CHECK_THROWS_AS(read(beyond), TorchFileError);
  view(nothing, INT64_MAX, {0});  // Python returns an empty tensor
  CHECK(read(nothing).as<at::Tensor>().numel() == 0);
}

TEST_CASE("an empty tensor may say any offset, and one of stride 0 any size", "[torch_file][odd]") {
  for (const auto format : {Format::Zip, Format::Legacy}) {
    const auto empty =
        Pickle(2, format).tensor({.offset = INT64_MAX, .sizes = {0, 3}, .strides = {INT64_MAX, 1}});
    CHECK(read(empty).as<at::Tensor>().sizes() == at::IntArrayRef({0, 3}));
    const auto wide = Pickle(2, format).tensor({.offset = 5, .sizes = {int64_t{1} << 40}, .strides = {0}});
    const auto tensor = read(wide).as<at::Tensor>();
    CHECK(tensor.numel() == int64_t{1} << 40);
    CHECK(tensor.storage().nbytes() == 24);
  }
}

// So many keys that comparing them pairwise would take minutes, and multiples that would collide in a simple
// hash table.
TEST_CASE("a dict of two hundred thousand keys is read", "[torch_file][odd]") {
  for (const int64_t step : {1, 65'537, 107'897, 218'971, 172'933}) {
    Pickle pickle;
    pickle.raw("}(");
    for (int64_t i = 0; i < 200'000; ++i) pickle.integer(i * step).raw("N");
    CHECK(read(pickle.raw("u")).as<FileValue::Dict>().items.size() == 200'000);
  }
}

// Compares every file that tools/generators/make_torch_files.py had Python write with Python's own
// description of it.

namespace {

const std::string kFolder = ATTENTIVE_TORCH_FILES;

// The names of all files with this ending, without the ending. Does not use std::filesystem: see
// TemporaryFolder.
std::vector<std::string> names_ending(const std::string& ending) {
  std::vector<std::string> names;
  DIR* folder = ::opendir(kFolder.c_str());
  REQUIRE(folder);
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.ends_with(ending)) names.push_back(name.substr(0, name.size() - ending.size()));
  }
  ::closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

json truth_beside(const std::string& name) {
  std::ifstream in(kFolder + name + ".json");
  return test::without_python_kinds(json::parse(in));
}

FileValue parse_file(const std::string& name) {
  const auto bytes = test::read_bytes(kFolder + name + ".pt");
  return parse_torch(bytes.data(), bytes.size());
}

// Returns only the first difference, which is enough to find a fault.
std::string first_difference(const json& got, const json& want) {
  const auto patch = json::diff(want, got);
  return patch.empty() ? "" : patch[0].dump(-1, ' ', false, json::error_handler_t::replace);
}

void check_reads_file(const std::string& name, const json& want) {
  const auto path = kFolder + name + ".pt";
  CHECK(first_difference(test::truth_of(load_torch(path)), want) == "");
  CHECK(first_difference(test::truth_of(load_torch(path, {.map = true})), want) == "");
  CHECK(first_difference(test::truth_of(load_torch(path, {.map = true, .checksums = false})), want) == "");
  CHECK(first_difference(test::truth_of(parse_file(name)), want) == "");
}

template <class Call>
void check_refuses(const Call& call, const std::string& caller, const json& words) {
  try {
    call();
    FAIL_CHECK("no error");
  } catch (const TorchFileError& error) {
    const std::string message = error.what_without_backtrace();
    INFO(message);
    CHECK(message.starts_with(caller));
    for (const std::string word : words) CHECK(message.find(word) != std::string::npos);
  }
}

void check_refuses(const std::string& name, const json& words) {
  const auto path = kFolder + name + ".pt";
  check_refuses([&] { load_torch(path); }, "load_torch: " + path + ": ", words);
  check_refuses([&] { load_torch(path, {.map = true}); }, "load_torch: " + path + ": ", words);
  check_refuses([&] { parse_file(name); }, "parse_torch: ", words);
}

}  // namespace

TEST_CASE("what Python saved is read as Python says, or refused by name", "[torch_file][python]") {
  const auto names = names_ending(".pt");
  REQUIRE(names == names_ending(".json"));
  REQUIRE(names.size() == 104);
  for (const auto& name : names) {
    INFO(name);
    const auto truth = truth_beside(name);
    if (name.ends_with("four_bits") && !find_torch_dtype("float4_e2m1fn_x2")) {
      WARN(name << ": LibTorch " << TORCH_VERSION << " lacks the dtype, which came with 2.8");
      check_refuses(name,
                    {"a dtype that LibTorch has since 2.8, \"torch.float4_e2m1fn_x2\", is not read here"});
    } else if (truth.contains("value")) {
      check_reads_file(name, truth.at("value"));
    } else {
      check_refuses(name, truth.at("refused"));
    }
  }
}
