// Cuts a file at every position, and changes every single byte of it: into twelve other values, and into all
// of them in the hidden tests "[.every_value]".
#include <numeric>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <attentive/files/torch_file.h>

#include "files/file_value_truth.h"
#include "support/file_bytes.h"
#include "support/temporary_folder.h"

using namespace attentive;
using attentive::test::parse_bytes;
using attentive::test::write_new_file;
using nlohmann::json;

namespace {

std::string python_file(const std::string& name) {
  return test::read_bytes(ATTENTIVE_TORCH_FILES + name + ".pt");
}

// The value that is read, or null after a refusal. Any other exception leaves the function and fails the
// test.
template <class Read>
json read_or_refuse(const Read& read) {
  try {
    return test::truth_of(read());
  } catch (const TorchFileError& error) {
    const std::string message = error.what_without_backtrace();
    CHECK(message.size() > std::string("load_torch: x: ").size());
    return nullptr;
  }
}

struct Counts {
  size_t refused = 0, same = 0, other = 0;
};

// Bits of a byte that change: each alone, all, and three patterns between.
std::vector<int> some_changes() {
  return {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF, 0x03, 0x7E, 0xA5};
}

std::vector<int> all_changes() {
  std::vector<int> changes(255);
  std::iota(changes.begin(), changes.end(), 1);
  return changes;
}

// Changes each byte of a file in each of these ways.
Counts change_every_byte(const std::string& bytes, const std::vector<int>& changes) {
  const auto truth = test::truth_of(parse_bytes(bytes));
  Counts counts;
  auto changed = bytes;
  for (size_t offset = 0; offset < bytes.size(); ++offset) {
    for (const int change : changes) {
      changed[offset] = static_cast<char>(bytes[offset] ^ change);
      const auto got = read_or_refuse([&] { return parse_bytes(changed); });
      ++(got.is_null() ? counts.refused : got == truth ? counts.same : counts.other);
    }
    changed[offset] = bytes[offset];
  }
  return counts;
}

void check_zip_file(const std::vector<int>& changes) {
  const auto counts = change_every_byte(python_file("tied"), changes);
  CHECK(counts.other == 0);
  CHECK(counts.refused > 0);
  CHECK(counts.same > 0);  // dates, padding
}

// The old format has no checksums, so changed numbers, names and sizes may be read.
void check_legacy_file(const std::vector<int>& changes) {
  const auto counts = change_every_byte(python_file("legacy_tied"), changes);
  CHECK(counts.refused > 0);
  CHECK(counts.other > 0);
}

}  // namespace

TEST_CASE("a torch.save file that was cut is refused wherever that was", "[torch_file][damage]") {
  const TemporaryFolder folder;
  for (const std::string name :
       {"tied", "legacy_tied", "plain_values_protocol4", "legacy_checkpoint_model"}) {
    INFO(name);
    const auto bytes = python_file(name);
    REQUIRE_FALSE(read_or_refuse([&] { return parse_bytes(bytes); }).is_null());
    size_t refused = 0;
    for (size_t size = 0; size < bytes.size(); ++size) {
      const auto part = std::make_unique<std::string>(bytes, 0, size);  // lets a sanitizer see its end
      refused += read_or_refuse([&] { return parse_bytes(*part); }).is_null();
      if (name.find("tied") == std::string::npos) continue;
      write_new_file(folder / "cut.pt", *part);
      refused += read_or_refuse([&] { return load_torch(folder / "cut.pt"); }).is_null();
      refused += read_or_refuse([&] { return load_torch(folder / "cut.pt", {.map = true}); }).is_null();
    }
    CHECK(refused == bytes.size() * (name.find("tied") == std::string::npos ? 1 : 3));
  }
}

TEST_CASE("a changed byte of a zip file is noticed or changes nothing", "[torch_file][damage]") {
  check_zip_file(some_changes());
}

TEST_CASE("every value of every byte of a zip file is noticed or changes nothing", "[.every_value]") {
  check_zip_file(all_changes());
}

TEST_CASE("a changed byte of a file in the old format never does more than change values",
          "[torch_file][damage]") {
  check_legacy_file(some_changes());
}

TEST_CASE("no value of any byte of a file in the old format does more than change values", "[.every_value]") {
  check_legacy_file(all_changes());
}

TEST_CASE("a changed byte does no more harm in a mapped file", "[torch_file][damage]") {
  const TemporaryFolder folder;
  for (const std::string name : {"tied", "legacy_tied"}) {
    const auto bytes = python_file(name);
    const auto truth = test::truth_of(parse_bytes(bytes));
    for (const bool checksums : {true, false}) {
      size_t other = 0;
      auto changed = bytes;
      for (size_t offset = 0; offset < bytes.size(); ++offset) {
        changed[offset] = static_cast<char>(~bytes[offset]);
        write_new_file(folder / "changed.pt", changed);
        const auto got = read_or_refuse(
            [&] { return load_torch(folder / "changed.pt", {.map = true, .checksums = checksums}); });
        other += !got.is_null() && got != truth;
        changed[offset] = bytes[offset];
      }
      CHECK((other > 0) == (name == "legacy_tied" || !checksums));
    }
  }
}
