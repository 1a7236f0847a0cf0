// Cuts a file at every position, and changes every single byte of it.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <attentive/files/torch_file.h>

#include "files/file_value_truth.h"
#include "support/file_bytes.h"
#include "support/source_folder.h"
#include "support/temporary_folder.h"

using namespace attentive;
using attentive::test::parse_bytes;
using attentive::test::write_bytes;
using nlohmann::json;

namespace {

std::string python_file(const std::string& name) {
  return test::read_bytes(test::source_folder() + "/tests/files/data/torch/" + name + ".pt");
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

// Sets each byte of a file to each of the other 255 values.
Counts change_every_byte(const std::string& bytes) {
  const auto truth = test::truth_of(parse_bytes(bytes));
  Counts counts;
  auto changed = bytes;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int flip = 1; flip < 256; ++flip) {
      changed[at] = static_cast<char>(bytes[at] ^ flip);
      const auto got = read_or_refuse([&] { return parse_bytes(changed); });
      ++(got.is_null() ? counts.refused : got == truth ? counts.same : counts.other);
    }
    changed[at] = bytes[at];
  }
  return counts;
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
      write_bytes(folder / "cut.pt", *part);
      refused += read_or_refuse([&] { return load_torch(folder / "cut.pt"); }).is_null();
      refused += read_or_refuse([&] { return load_torch(folder / "cut.pt", {.map = true}); }).is_null();
    }
    CHECK(refused == bytes.size() * (name.find("tied") == std::string::npos ? 1 : 3));
  }
}

TEST_CASE("a changed byte of a zip file is noticed or changes nothing", "[torch_file][damage]") {
  const auto counts = change_every_byte(python_file("tied"));
  CHECK(counts.other == 0);
  CHECK(counts.refused > 0);
  CHECK(counts.same > 0);  // dates, padding
}

// The old format has no checksums, so changed numbers, names and sizes may be read.
TEST_CASE("a changed byte of a file in the old format never does more than change values",
          "[torch_file][damage]") {
  const auto counts = change_every_byte(python_file("legacy_tied"));
  CHECK(counts.refused > 0);
  CHECK(counts.other > 0);
}

TEST_CASE("a changed byte does no more harm in a mapped file", "[torch_file][damage]") {
  const TemporaryFolder folder;
  for (const std::string name : {"tied", "legacy_tied"}) {
    const auto bytes = python_file(name);
    const auto truth = test::truth_of(parse_bytes(bytes));
    for (const bool checksums : {true, false}) {
      size_t other = 0;
      auto changed = bytes;
      for (size_t at = 0; at < bytes.size(); ++at) {
        changed[at] = static_cast<char>(~bytes[at]);
        write_bytes(folder / "changed.pt", changed);
        const auto got = read_or_refuse(
            [&] { return load_torch(folder / "changed.pt", {.map = true, .checksums = checksums}); });
        other += !got.is_null() && got != truth;
        changed[at] = bytes[at];
      }
      CHECK((other > 0) == (name == "legacy_tied" || !checksums));
    }
  }
}
