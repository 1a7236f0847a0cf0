// Every file of hostile_*.cpp is refused with a message that says what is wrong, owned, mapped and from
// memory, and costs no more than it may.
#include <algorithm>
#include <cctype>
#include <fstream>

#include <catch2/catch_test_macros.hpp>

#include <attentive/io/torch_file.h>

#include "io/hostile_torch_file.h"
#include "support/temporary_folder.h"

using namespace attentive;
using namespace attentive::test;

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
}

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const TorchFileError& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return std::string("another kind of error: ") + error.what();
  }
  return "no error";
}

// The four ways to read a file.
struct Way {
  const char* name;
  std::function<void()> read;
  std::string prefix;
};

std::vector<Way> ways_to_read(const std::string& path, const std::string& bytes) {
  const auto prefix = "load_torch: " + path + ": ";
  return {{"owned", [&path] { load_torch(path); }, prefix},
          {"mapped", [&path] { load_torch(path, {.map = true}); }, prefix},
          {"mapped, unchecked", [&path] { load_torch(path, {.map = true, .checksums = false}); }, prefix},
          {"from memory", [&bytes] { parse_torch(bytes.data(), bytes.size()); }, "parse_torch: "}};
}

void check_message(const HostileFile& file, const Way& way, const std::string& message) {
  INFO(way.name << ": " << message);
  const bool about_checksum = file.name.find("checksum") != std::string::npos;
  if (about_checksum && std::string(way.name) == "mapped, unchecked") return;
  CHECK(message.starts_with(way.prefix));
  CHECK(message.size() > way.prefix.size() + 10);
  CHECK(message.size() < way.prefix.size() + 500);
  CHECK(printable(message));
  for (const auto& word : file.words) {
    INFO("expected: " << word);
    CHECK(lower(message).find(lower(word)) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("hostile torch.save files are refused with a reason", "[torch_file][hostile]") {
  const TemporaryFolder folder;
  const auto path = (folder / "file.pt").string();
  size_t number = 0;
  for (const auto& group : hostile_groups()) {
    for (const auto& file : group.files()) {
      INFO(group.name << ": " << file.name);
      ++number;
      std::ofstream(path, std::ios::binary) << file.bytes;
      for (const auto& way : ways_to_read(path, file.bytes)) check_message(file, way, refusal(way.read));
    }
  }
  CHECK(number > 1000);
}
