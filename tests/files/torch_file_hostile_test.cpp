// Every file of hostile_*.cpp is refused with a message that states the fault, for owned and mapped tensors
// and from memory, and within the memory limit.
#include <algorithm>
#include <cctype>

#include <catch2/catch_test_macros.hpp>

#include <attentive/files/torch_file.h>

#include "files/hostile_torch_file.h"
#include "support/file_bytes.h"
#include "support/peak_memory.h"
#include "support/temporary_folder.h"

using namespace attentive;
using namespace attentive::test;

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Whether a text has no control characters, including the C1 ones (U+0080 to U+009F), which some terminals
// obey.
bool printable(const std::string& text) {
  for (size_t i = 1; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (text[i - 1] == '\xc2' && byte >= 0x80 && byte < 0xa0) return false;
  }
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

// Whether the file is accepted when checksums are not checked, because only a checksum is wrong.
bool is_read(const HostileFile& file, const Way& way) {
  const bool sum = std::any_of(file.words.begin(), file.words.end(),
                               [](const auto& word) { return word.find("CRC-32") != std::string::npos; });
  return sum && file.name.find("checksum") != std::string::npos &&
         std::string(way.name) == "mapped, unchecked";
}

void check_message(const HostileFile& file, const Way& way, const std::string& message) {
  INFO(message);
  CHECK(message.starts_with(way.prefix));
  CHECK(message.size() > way.prefix.size() + 10);
  CHECK(message.size() < way.prefix.size() + 500);
  CHECK(printable(message));
  CHECK(message.find("its pickle, byte") == message.rfind("its pickle, byte"));  // stated once
  REQUIRE_FALSE(file.words.empty());
  for (const auto& word : file.words) {
    INFO("expected: " << word);
    CHECK(lower(message).find(lower(word)) != std::string::npos);
  }
}

// Returns the refusal's message, and checks that the call needs less than 64 MiB above the file's size, both
// in touched and in requested memory. If memory cannot be measured, only returns the message.
std::string refusal_within_memory(const HostileFile& file, const Way& way) {
  static const auto unmeasured = why_no_peak_memory();
  if (unmeasured) return refusal(way.read);
  const auto allowed = file.bytes.size() + (size_t{64} << 20);
  std::string message;
  const auto peak = peak_memory([&] { with_address_space(allowed, [&] { message = refusal(way.read); }); });
  CHECK(peak < allowed);
  CHECK(message.find("there is no memory") == std::string::npos);
  return message;
}

// Checks all groups with this name, which must have at least `at_least` files.
void check_group_refused(const std::string& kind, size_t at_least) {
  const TemporaryFolder folder;
  const auto path = (folder / "file.pt").string();
  size_t number = 0;
  for (const auto& group : hostile_groups()) {
    if (!group.name.starts_with(kind)) continue;
    for (const auto& file : group.files()) {
      INFO(group.name << ": " << file.name);
      ++number;
      write_new_file(path, file.bytes);
      for (const auto& way : ways_to_read(path, file.bytes)) {
        INFO(way.name);
        if (!is_read(file, way)) check_message(file, way, refusal_within_memory(file, way));
      }
    }
  }
  CHECK(number >= at_least);
}

}  // namespace

TEST_CASE("hostile archives are refused with a reason", "[torch_file][hostile][archives]") {
  check_group_refused("archives", 220);
}

TEST_CASE("hostile records of an archive are refused with a reason", "[torch_file][hostile][records]") {
  check_group_refused("records", 30);
}

TEST_CASE("hostile files of the old format are refused with a reason", "[torch_file][hostile][legacy]") {
  check_group_refused("legacy files", 58);
}

TEST_CASE("hostile opcodes are refused with a reason", "[torch_file][hostile][opcodes]") {
  check_group_refused("opcodes", 650);
}

TEST_CASE("hostile sizes are refused with a reason", "[torch_file][hostile][sizes]") {
  check_group_refused("sizes", 80);
}

TEST_CASE("hostile values are refused with a reason", "[torch_file][hostile][values]") {
  check_group_refused("values", 175);
}

TEST_CASE("hostile tensors are refused with a reason", "[torch_file][hostile][tensors]") {
  check_group_refused("tensors", 220);
}

TEST_CASE("the memory of refusals is measured", "[torch_file][hostile]") {
  if (const auto reason = why_no_peak_memory()) SKIP(*reason);
  const auto megabytes = [](size_t count) { return [count] { (void)std::string(count << 20, 'x').data(); }; };
  CHECK(peak_memory(megabytes(100)) > (99u << 20));
  CHECK(peak_memory(megabytes(1)) < (10u << 20));
  CHECK_THROWS_AS(with_address_space(50u << 20, megabytes(100)), std::bad_alloc);
}
