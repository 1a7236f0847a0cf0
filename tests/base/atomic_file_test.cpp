// Saving must leave the old file intact, whatever happens; tested through save_safetensors, as users call it.

#include <chrono>
#include <csignal>
#include <dirent.h>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/files/safetensors.h>

#include "base/files.h"
#include "base/strings.h"
#include "support/files.h"

using attentive::load_safetensors;
using attentive::SafetensorsError;
using attentive::save_safetensors;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

int files_in(const TemporaryFolder& folder) {
  int count = 0;
  DIR* stream = ::opendir(folder.path().c_str());
  while (::readdir(stream)) ++count;
  ::closedir(stream);
  return count - 2;  // "." and ".."
}

int64_t first(const std::filesystem::path& path) {
  return load_safetensors(path).tensors.at("x").flatten()[0].item<int64_t>();
}

// Limits the size of files that this process may write, until the end of the scope, to simulate a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit small{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit old_{};
};

}  // namespace

TEST_CASE("a save that runs out of space leaves the old file whole", "[atomic_file]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "f", {{"x", at::full({4}, 1)}});
  const auto large = at::full({100'000}, 2);
  {
    const FileSizeLimit limit(4096);
    CHECK_THROWS_MATCHES(
        save_safetensors(folder / "f", {{"x", large}}), SafetensorsError,
        MessageMatches(ContainsSubstring((folder / "f").string() + ": cannot write: File too large")));
  }
  CHECK(first(folder / "f") == 1);
  CHECK(files_in(folder) == 1);
}

TEST_CASE("bytes that were written may be replaced before the commit", "[atomic_file]") {
  const TemporaryFolder folder;
  attentive::AtomicFile file(folder / "f");
  file.write("abcd", 4);
  file.overwrite(1, "xy", 2);
  file.write("e", 1);
  file.commit();
  CHECK(attentive::read_file(folder / "f") == "axyde");
}

TEST_CASE("saving onto the loaded path is safe", "[atomic_file]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "f", {{"x", at::arange(1000)}, {"y", at::arange(3)}});
  const auto file = load_safetensors(folder / "f");
  save_safetensors(folder / "f", file.tensors);
  const auto again = load_safetensors(folder / "f");
  CHECK(again.tensors.at("x").equal(at::arange(1000)));
  CHECK(file.tensors.at("x").equal(at::arange(1000)));
  CHECK(files_in(folder) == 1);
}

TEST_CASE("targets that cannot be written are named with the reason", "[atomic_file][errors]") {
  const TemporaryFolder folder;
  CHECK_THROWS_MATCHES(
      save_safetensors(folder / "none/f", {}), SafetensorsError,
      MessageMatches(ContainsSubstring("cannot create a temporary file in its folder: No such file")));
  CHECK_THROWS_MATCHES(save_safetensors(folder.path(), {}), SafetensorsError,
                       MessageMatches(ContainsSubstring("Is a directory")));
  CHECK(files_in(folder) == 0);
}

TEST_CASE("a folder without write permission is refused and nothing is lost", "[atomic_file][errors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "f", {{"x", at::full({1}, 1)}});
  ::chmod(folder.path().c_str(), 0555);
  const uid_t user = ::geteuid();
  if (user == 0) REQUIRE(::seteuid(65534) == 0);  // the superuser may write everywhere
  CHECK_THROWS_MATCHES(save_safetensors(folder / "f", {{"x", at::full({1}, 2)}}), SafetensorsError,
                       MessageMatches(ContainsSubstring("Permission denied")));
  if (user == 0) REQUIRE(::seteuid(user) == 0);
  ::chmod(folder.path().c_str(), 0700);
  CHECK(first(folder / "f") == 1);
}

TEST_CASE("a symbolic link stays one, permissions stay", "[atomic_file]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "real", {{"x", at::full({1}, 1)}});
  ::chmod((folder / "real").c_str(), 0640);
  std::filesystem::create_symlink("real", folder / "link");
  save_safetensors(folder / "link", {{"x", at::full({1}, 2)}});
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(first(folder / "real") == 2);
  struct stat info {};
  ::stat((folder / "real").c_str(), &info);
  CHECK((info.st_mode & 07777) == 0640);
}

TEST_CASE("a symbolic link to a file that is not there yet is followed", "[atomic_file]") {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  fs::create_directory(folder / "a");
  fs::create_directory(folder / "b");
  fs::create_symlink("../b/real", folder / "a/second");
  fs::create_symlink("a/second", folder / "first");
  fs::create_symlink(folder / "b/absolute", folder / "third");
  save_safetensors(folder / "first", {{"x", at::full({1}, 7)}});
  save_safetensors(folder / "third", {{"x", at::full({1}, 8)}});
  CHECK(fs::is_symlink(folder / "first"));
  CHECK(fs::is_symlink(folder / "a/second"));
  CHECK_FALSE(fs::is_symlink(folder / "b/real"));
  CHECK(first(folder / "b/real") == 7);
  CHECK(fs::is_symlink(folder / "third"));
  CHECK(first(folder / "b/absolute") == 8);
  // The target folder does not exist: the link stays, and nothing appears next to it.
  fs::create_symlink("none/real", folder / "astray");
  CHECK_THROWS_MATCHES(
      save_safetensors(folder / "astray", {}), SafetensorsError,
      MessageMatches(ContainsSubstring("cannot create a temporary file in its folder: No such file")));
  CHECK(fs::is_symlink(folder / "astray"));
  CHECK(files_in(folder) == 5);
}

TEST_CASE("a loop of symbolic links is an error and stays", "[atomic_file][errors]") {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  fs::create_symlink("self", folder / "self");
  fs::create_symlink("two", folder / "one");
  fs::create_symlink("one", folder / "two");
  for (const std::string name : {"self", "one"}) {
    CHECK_THROWS_MATCHES(
        save_safetensors(folder / name, {}), SafetensorsError,
        MessageMatches(ContainsSubstring((folder / name).string() + ": cannot follow the link: "
                                                                    "Too many levels of symbolic links")));
    CHECK(fs::is_symlink(folder / name));
  }
  CHECK(files_in(folder) == 3);
}

TEST_CASE("a relative path without a folder is saved in the working folder", "[atomic_file]") {
  const TemporaryFolder folder;
  const auto old = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  CHECK_NOTHROW(save_safetensors("f", {{"x", at::full({1}, 1)}}));
  std::filesystem::current_path(old);
  CHECK(first(folder / "f") == 1);
}

TEST_CASE("killed at any moment, a save leaves a file that loads", "[atomic_file]") {
  const TemporaryFolder folder;
  std::map<std::string, at::Tensor> versions[] = {{{"x", at::full({50'000}, 0)}},
                                                  {{"x", at::full({50'000}, 1)}}};
  save_safetensors(folder / "f", versions[0]);
  for (int round = 0; round < 20; ++round) {
    int started[2];
    REQUIRE(::pipe(started) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      for (int i = 0;; ++i) {
        save_safetensors(folder / "f", versions[i % 2]);
        if (i == 0 && ::write(started[1], "", 1) != 1) ::_exit(1);
      }
    }
    ::close(started[1]);
    char byte = 1;
    REQUIRE(::read(started[0], &byte, 1) == 1);  // it is saving, and LibTorch has started
    ::close(started[0]);
    std::this_thread::sleep_for(std::chrono::microseconds(1371 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const auto x = load_safetensors(folder / "f").tensors.at("x");
    const auto value = x[0].item<int64_t>();
    CHECK((value == 0 || value == 1));
    CHECK(x.eq(value).all().item<bool>());
  }
}

using namespace attentive;

TEST_CASE("text becomes XML that has no markup of its own", "[xml]") {
  CHECK(xml_text("a<b>&\"c\"'") == "a&lt;b&gt;&amp;&quot;c&quot;'");
  CHECK(xml_text("Grüße, 東京 👍🏽 مرحبا") == "Grüße, 東京 👍🏽 مرحبا");
  CHECK(xml_text("").empty());
}

TEST_CASE("what XML does not have becomes a picture or U+FFFD", "[xml]") {
  for (int code = 0; code < 0x20; ++code) {
    const auto text = xml_text(std::string(1, static_cast<char>(code)));
    CHECK(text == std::string("\xE2\x90") + static_cast<char>(0x80 + code));  // U+2400 + code
  }
  CHECK(xml_text("\x7f") == "␡");
  CHECK(xml_text("a\xff\xc3(\xed\xa0\x80") == "a��(���");
  CHECK(xml_text("\xEF\xBF\xBE\xEF\xBF\xBF") == "��");
}

TEST_CASE("a long text is cut between its characters", "[xml]") {
  CHECK(shortened("abc", 3) == "abc");
  CHECK(shortened("abcd", 3) == "ab…");
  CHECK(shortened("東京都庁", 3) == "東京…");
  CHECK(shortened("\xff\xff\xff", 2) == "\xff…");
  CHECK(shortened("", 3).empty());
}
