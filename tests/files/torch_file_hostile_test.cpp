// Every file of hostile_*.cpp is refused with a message that states the fault, for owned and mapped tensors
// and from memory, and within the memory limit.

#include <algorithm>
#include <cctype>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>
#include <attentive/files/torch_file.h>
#include <attentive/parity/case.h>

#include "files/file_value_truth.h"
#include "files/hostile_torch_file.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/memory_meter.h"

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

// Cuts a file at every position, and changes every single byte of it: into twelve other values, and into all
// of them in the hidden tests "[.every_value]".

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

using attentive::test::Format;
using attentive::test::Pickle;
using attentive::test::times;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::StartsWith;

// Each limit of TorchFileLimits, at its value and one below what the file needs.

namespace {

std::string outcome(const std::string& bytes, const TorchFileLimits& limits) {
  try {
    parse_torch(bytes.data(), bytes.size(), {.limits = limits});
    return "read";
  } catch (const TorchFileError& error) {
    return error.what_without_backtrace();
  }
}

// Checks in both formats that the file is read at `limit`, and refused one below with a message that names
// the limit.
template <class Number>
void check_limit(Number TorchFileLimits::*limit, Number enough, const std::string& name,
                 const std::function<Pickle(Format)>& pickle) {
  for (const auto format : {Format::Zip, Format::Legacy}) {
    const auto bytes = test::file_of(format, pickle(format).stop());
    TorchFileLimits limits;
    limits.*limit = enough;
    CHECK(outcome(bytes, limits) == "read");
    limits.*limit = enough - 1;
    const auto message = outcome(bytes, limits);
    INFO(message);
    CHECK(message.starts_with("parse_torch: "));
    CHECK(message.find(name) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("each limit of a torch.save file holds at its value and is named", "[torch_file][limits]") {
  const auto tensor = [](Format format) { return Pickle(2, format).tensor(); };
  check_limit(&TorchFileLimits::max_tensor_bytes, uint64_t{24}, "max_tensor_bytes", tensor);
  check_limit(&TorchFileLimits::max_tensors, int64_t{2}, "max_tensors", [](Format format) {
    return Pickle(2, format).tensor().tensor({.offset = 1, .sizes = {1}, .strides = {1}}).raw("\x86");
  });
  check_limit(&TorchFileLimits::max_depth, int64_t{3}, "max_depth",
              [](Format format) { return Pickle(2, format).raw("K\1\x85\x85\x85"); });
  check_limit(&TorchFileLimits::max_depth, int64_t{3}, "max_depth",
              [](Format format) { return Pickle(2, format).raw("]}K\1K\2\x85s").raw("a"); });
  check_limit(&TorchFileLimits::max_values, int64_t{101}, "max_values",
              [](Format format) { return Pickle(2, format).raw("(").raw(times(100, "N")).raw("t"); });
  // A value that is mentioned twice counts twice: five lists of a list of three.
  check_limit(&TorchFileLimits::max_values, int64_t{21}, "max_values", [](Format format) {
    return Pickle(2, format).raw(std::string("](](NNNeq\0h\0h\0h\0h\0e", 19));
  });
}

TEST_CASE("limits that say nothing are refused before a file is opened", "[torch_file][limits]") {
  const auto check_refused = [](const TorchFileLimits& limits, const std::string& name) {
    const std::string want = "load_torch: expected limits." + name + " from 1 to ";
    CHECK_THROWS_MATCHES(load_torch("/no such file", {.limits = limits}), c10::ValueError,
                         MessageMatches(StartsWith(want)));
  };
  check_refused({.max_pickle_bytes = 0}, "max_pickle_bytes");
  check_refused({.max_pickle_bytes = ~uint64_t{0}}, "max_pickle_bytes");
  check_refused({.max_pickle_bytes = uint64_t{1} << 32}, "max_pickle_bytes");
  check_refused({.max_depth = 0}, "max_depth");
  check_refused({.max_depth = -1}, "max_depth");
  check_refused({.max_depth = 1001}, "max_depth");
  check_refused({.max_tensors = -1}, "max_tensors");
  check_refused({.max_tensors = INT64_MAX}, "max_tensors");
  check_refused({.max_values = -1}, "max_values");
  check_refused({.max_values = int64_t{1} << 32}, "max_values");
}

TEST_CASE("the description has a limit of its own", "[torch_file][limits]") {
  for (const auto format : {Format::Zip, Format::Legacy}) {
    const auto bytes = test::file_of(format, Pickle(2, format).text(times(1 << 20, "x")).stop());
    CHECK(outcome(bytes, {.max_pickle_bytes = uint64_t{4} << 20}) == "read");
    CHECK(outcome(bytes, {.max_pickle_bytes = 1 << 20}).find("max_pickle_bytes") != std::string::npos);
  }
}

TEST_CASE("a hundred containers within each other are read", "[torch_file][limits]") {
  for (const auto format : {Format::Zip, Format::Legacy}) {
    CHECK(outcome(test::file_of(format, Pickle(2, format).raw("N").raw(times(100, "\x85")).stop()), {}) ==
          "read");
    const auto lists = Pickle(2, format).raw(times(100, "]")).raw(times(99, "a")).stop();
    CHECK(outcome(test::file_of(format, lists), {}) == "read");
    const auto deep = Pickle(2, format).raw("N").raw(times(1000, "\x85")).stop();
    CHECK(outcome(test::file_of(format, deep), {.max_depth = 1000}) == "read");
  }
}

// A path that is not a regular file, or that cannot be opened, is refused without waiting for bytes that
// never come or never end.

namespace {

void check_not_opened(const std::filesystem::path& path, const std::string& reason) {
  for (const bool map : {false, true}) {
    CHECK_THROWS_MATCHES(
        load_torch(path, {.map = map}), TorchFileError,
        MessageMatches(StartsWith("load_torch: " + path.string() + ": ") && ContainsSubstring(reason)));
  }
}

// Switches to another user during its lifetime, because root may open everything.
class Nobody {
 public:
  Nobody() : changed_(::geteuid() == 0 && ::seteuid(65534) == 0) {}
  ~Nobody() {
    if (changed_ && ::seteuid(0) != 0) std::abort();
  }
  Nobody(const Nobody&) = delete;
  Nobody& operator=(const Nobody&) = delete;

 private:
  bool changed_;
};

}  // namespace

TEST_CASE("what is no regular file is not read", "[torch_file][open]") {
  const TemporaryFolder folder;
  check_not_opened(folder / "missing.pt", "No such file");
  check_not_opened(folder.path(), "regular file");
  check_not_opened("/dev/zero", "regular file");
  check_not_opened("/dev/null", "regular file");
  check_not_opened("", "No such file");

  const auto pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  check_not_opened(pipe, "regular file");

  const auto loop = folder / "loop";
  REQUIRE(::symlink(loop.c_str(), loop.c_str()) == 0);
  check_not_opened(loop, "symbolic links");

  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto name = (folder / "socket").string();
  REQUIRE(name.size() < sizeof(address.sun_path));
  name.copy(address.sun_path, name.size());
  REQUIRE(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  check_not_opened(name, "");
  ::close(listener);

  std::ofstream(folder / "nothing.pt").flush();
  check_not_opened(folder / "nothing.pt", "empty");
}

TEST_CASE("a file that may not be read says so", "[torch_file][open]") {
  const TemporaryFolder folder;
  const auto path = folder / "secret.pt";
  std::ofstream(path) << "secret";
  REQUIRE(::chmod(path.c_str(), 0) == 0);
  const Nobody nobody;
  if (::access(path.c_str(), R_OK) == 0 && ::geteuid() == 0)
    SKIP("root may read everything, and may not be another user");
  check_not_opened(path, "Permission denied");
}

// A pipe, socket, device or folder in place of a file is refused immediately.

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
