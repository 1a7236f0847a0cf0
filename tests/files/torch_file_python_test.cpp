// Compares every file that tools/generators/make_torch_files.py had Python write with Python's own
// description of it.
#include <algorithm>
#include <dirent.h>
#include <fstream>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <torch/version.h>

#include <attentive/files/torch_file.h>

#include "files/dtypes.h"
#include "files/file_value_truth.h"
#include "support/file_bytes.h"

using namespace attentive;
using nlohmann::json;

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
