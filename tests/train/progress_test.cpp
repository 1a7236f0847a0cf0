#include <algorithm>
#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include <attentive/train/training_log.h>

#include "base/files.h"
#include "support/temporary_folder.h"

using namespace attentive;

namespace {

// A pseudo-terminal: text written to its stream can be read from its other end.
class Terminal {
 public:
  Terminal() : end_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    REQUIRE(end_ >= 0);
    REQUIRE(::grantpt(end_) == 0);
    REQUIRE(::unlockpt(end_) == 0);
    stream_ = ::fdopen(::open(::ptsname(end_), O_WRONLY | O_NOCTTY), "w");
    REQUIRE(stream_);
  }
  ~Terminal() {
    std::fclose(stream_);
    ::close(end_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  std::FILE* stream() const { return stream_; }
  void resize(int columns) const {
    const winsize size{
        .ws_row = 24, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(::ioctl(end_, TIOCSWINSZ, &size) == 0);
  }
  std::string read() const {
    std::array<char, 4096> buffer{};
    const auto count = ::read(end_, buffer.data(), buffer.size());
    REQUIRE(count > 0);
    return {buffer.data(), static_cast<size_t>(count)};
  }

 private:
  int end_;
  std::FILE* stream_ = nullptr;
};

}  // namespace

TEST_CASE("Progress formats its line", "[progress]") {
  const LogRow row{.step = 800, .loss = 2.0125, .validation_loss = 2.05, .tokens_per_second = 20513.4};
  CHECK(Progress::format(row, 2000, 47, true) ==
        " 40% [########------------] 800/2000 loss 2.0125 val 2.0500 20513 tok/s ETA 0:47");
  CHECK(Progress::format({.step = 2000, .loss = 1}, 2000, 0, false) ==
        "100% 2000/2000 loss 1.0000 0 tok/s ETA 0:00");
  CHECK(Progress::format({.step = 1, .loss = 1}, 2000, 11229, false).ends_with("ETA 3:07:09"));
}

TEST_CASE("Progress writes plain lines where there is no terminal", "[progress]") {
  const TemporaryFolder folder;
  std::FILE* file = std::fopen((folder / "out").c_str(), "w");
  {
    Progress progress(file, 25, 0, 10);
    for (int64_t step = 1; step <= 25; ++step) progress.show({.step = step, .loss = 1});
    progress.note("saved");
  }
  std::fclose(file);
  const auto text = read_file(folder / "out");
  CHECK(text.find('\r') == std::string::npos);
  CHECK(text.find('\033') == std::string::npos);
  size_t lines = 0;
  for (const char c : text) lines += c == '\n';
  CHECK(lines == 4);  // steps 10, 20, 25 and the note
}

TEST_CASE("Progress drops what matters least where the terminal is narrow", "[progress]") {
  const LogRow row{.step = 8000, .loss = 2.0125, .validation_loss = 2.05, .tokens_per_second = 20513.4};
  const auto line = [&](int64_t columns) { return Progress::format(row, 20000, 47, true, columns); };
  CHECK(line(200) == " 40% [########------------] 8000/20000 loss 2.0125 val 2.0500 20513 tok/s ETA 0:47");
  CHECK(line(79) == " 40% [######-----------] 8000/20000 loss 2.0125 val 2.0500 20513 tok/s ETA 0:47");
  CHECK(line(66) == " 40% [#---] 8000/20000 loss 2.0125 val 2.0500 20513 tok/s ETA 0:47");
  CHECK(line(65) == " 40% 8000/20000 loss 2.0125 val 2.0500 20513 tok/s ETA 0:47");
  CHECK(line(58) == " 40% [###-----] 8000/20000 loss 2.0125 val 2.0500 ETA 0:47");
  CHECK(line(46) == " 40% [##---] 8000/20000 loss 2.0125 val 2.0500");
  CHECK(line(30) == " 40% 8000/20000 loss 2.0125");
  CHECK(line(20) == " 40% 8000/20000");
  CHECK(line(10) == " 40%");
  CHECK(line(2) == " 4");
  CHECK(line(0).empty());
  CHECK(line(-1).empty());
  for (int64_t columns = 0; columns < 120; ++columns) {
    INFO(columns << " columns");
    CHECK(line(columns).size() <= static_cast<size_t>(columns));
  }
}

TEST_CASE("Progress stays narrower than its terminal, also when that changes", "[progress]") {
  Terminal terminal;
  Progress progress(terminal.stream(), /*total=*/20000);
  const LogRow row{.step = 20000, .loss = 2.0125, .validation_loss = 2.05, .tokens_per_second = 20513};
  const auto drawn = [&](int columns) {
    terminal.resize(columns);
    progress.show(row);  // the last step is always drawn
    const auto text = terminal.read();
    REQUIRE(text.starts_with("\r\033[K"));
    return text.substr(4);
  };
  CHECK(drawn(200).size() > 80);
  for (const int columns : {80, 40, 23, 5, 2, 1, 120}) {
    INFO(columns << " columns");
    CHECK(drawn(columns).size() <= static_cast<size_t>(std::max(columns - 3, 0)));  // "^C" must fit too
  }
  CHECK(drawn(80).size() > 70);
  CHECK(drawn(0).size() > 70);  // if the width is unknown, 80 columns are assumed
  CHECK(drawn(0).size() <= 77);
}
