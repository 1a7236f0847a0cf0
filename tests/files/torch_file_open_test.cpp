// A path that is not a regular file, or that cannot be opened, is refused without waiting for bytes that
// never come or never end.
#include <fstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/files/torch_file.h>

#include "support/temporary_folder.h"

using namespace attentive;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::StartsWith;

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
