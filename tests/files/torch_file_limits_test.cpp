#include <fstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/files/torch_file.h>

#include "files/hostile_torch_file.h"
#include "support/temporary_folder.h"

using namespace attentive;
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
