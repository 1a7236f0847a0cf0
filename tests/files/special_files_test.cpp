// A pipe, socket, device or folder in place of a file is refused immediately.

#include "support/special_files.h"

#include <functional>
#include <map>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>
#include <attentive/parity/case.h>

#include "support/errors.h"

using namespace attentive;
using namespace attentive::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("readers refuse what is no regular file", "[special_files]") {
  using Path = std::filesystem::path;
  const std::map<std::string, std::function<void(const Path&)>> readers = {
      {"load_safetensors", [](const Path& path) { load_safetensors(path); }},
      {"read_state_dict", [](const Path& path) { read_state_dict(path); }},
      {"load_safetensors (case)", [](const Path& path) { read_case(path); }}};
  const TemporaryFolder folder;
  for (const auto& path : special_files(folder)) {
    for (const auto& [name, read] : readers) {
      INFO(name << " of " << path);
      const auto message = error_of<c10::ValueError>([&, call = read] { call(path); });
      CHECK_THAT(message, ContainsSubstring(name.substr(0, name.find(' ')) + ": " + path.string() + ": "));
    }
  }
}
