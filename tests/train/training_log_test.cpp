#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include <attentive/train/training_log.h>

#include "base/files.h"
#include "support/errors.h"
#include "support/files.h"

using namespace attentive;

namespace {

LogRow row(int64_t step) {
  LogRow r{step, 1.0 / static_cast<double>(step), std::nullopt, 1e-3, 0.7, 12345.6789};
  if (step % 2 == 0) r.validation_loss = 0.1 * static_cast<double>(step);
  if (step % 3 == 0) r.loss_scale = 1024;
  return r;
}

bool same_row(const LogRow& a, const LogRow& b) {
  return a.step == b.step && a.loss == b.loss && a.validation_loss == b.validation_loss &&
         a.learning_rate == b.learning_rate && a.gradient_norm == b.gradient_norm &&
         a.tokens_per_second == b.tokens_per_second && a.loss_scale == b.loss_scale;
}

}  // namespace

TEST_CASE("TrainingLog writes numbers that read back exactly", "[training_log]") {
  const TemporaryFolder folder;
  for (const char* name : {"log.csv", "log.jsonl"}) {
    {
      TrainingLog log(folder / name, 0);
      for (int64_t step = 1; step <= 6; ++step) log.add(row(step));
    }
    const auto rows = read_log(folder / name);
    REQUIRE(rows.size() == 6);
    for (int64_t step = 1; step <= 6; ++step) CHECK(same_row(rows[static_cast<size_t>(step - 1)], row(step)));
  }
  CHECK(read_file(folder / "log.csv")
            .starts_with(
                "step,loss,validation_loss,learning_rate,gradient_norm,tokens_per_second,loss_scale\n1,1,,0."
                "001,0.7,12345.6789,\n"
                "2,0.5,0.2,"));
  CHECK(
      read_file(folder / "log.jsonl").starts_with("{\"step\": 1, \"loss\": 1, \"validation_loss\": null, "));
}

TEST_CASE("A resumed TrainingLog drops the steps that are done again and a torn last line",
          "[training_log]") {
  const TemporaryFolder folder;
  for (const char* name : {"log.csv", "log.jsonl"}) {
    {
      TrainingLog log(folder / name, 0);
      for (int64_t step = 1; step <= 6; ++step) log.add(row(step));
    }
    const auto text = read_file(folder / name);
    std::ofstream(folder / name, std::ios::trunc) << text.substr(0, text.size() - 3);
    CHECK(read_log(folder / name).size() == 5);
    TrainingLog log(folder / name, 4);
    CHECK(log.rows().size() == 4);
    log.add(row(5));
    CHECK(read_log(folder / name).size() == 5);
  }
}

TEST_CASE("A damaged line of a log is dropped alone, and said", "[training_log]") {
  const TemporaryFolder folder;
  const auto path = folder / "log.csv", json = folder / "log.jsonl";
  for (const auto& file : {path, json}) {
    TrainingLog log(file, 0);
    CHECK(log.remarks().empty());
    for (int64_t step = 1; step <= 4; ++step) log.add(row(step));
  }
  const auto dropped = [](const std::filesystem::path& file, const std::string& line) {
    return file.string() + ": dropped line " + line;
  };
  // Each line is invalid in one cell; steps 1 to 4 stay.
  const auto lines = read_file(path);
  for (const std::string bad :
       {"5,0.2,,0.001,0.7", "5,0.2,,0.001,0.7,", "5,0.2,,0.001,0.7,1,1,1", "5,0.2,,0.001,0.7,1,x",
        "5,x,,0.001,0.7,1", "5,0.2,x,0.001,0.7,1", "5,0.2,,0.001x,0.7,1", "5,0.2,,0.001,,1",
        "5,0.2,,0.001,0.7,1x", "5.5,0.2,,0.001,0.7,1", ",0.2,,0.001,0.7,1", "what"}) {
    std::ofstream(path, std::ios::trunc) << lines << bad << "\n";
    const TrainingLog log(path, 9);
    CHECK(log.rows().size() == 4);
    CHECK(log.remarks() == std::vector{dropped(path, "6, which is no row of a log: " + bad)});
    CHECK(read_file(path) == lines);
  }
  std::ofstream(path, std::ios::trunc)
      << "loss\n"
      << lines.substr(lines.find('\n') + 1) << "\r\n5,0.2,,0.001,\x1b[2J\xFF";
  CHECK(TrainingLog(path, 9).remarks() ==
        std::vector{dropped(path, "1, which is no row of a log: loss"),
                    dropped(path, "7, which has no end: 5,0.2,,0.001,?[2J\uFFFD")});
  CHECK(read_file(path) == lines);

  const auto objects = read_file(json);
  for (
      const std::string bad :
      {R"({"step": 5})",
       R"({"step": 5, "loss": "x", "validation_loss": null, "learning_rate": 1, "gradient_norm": 1, "tokens_per_second": 1})",
       R"({"step": 5.5, "loss": 1, "validation_loss": null, "learning_rate": 1, "gradient_norm": 1, "tokens_per_second": 1})",
       R"({"step": 5, "loss": 1, "validation_loss": null, "learning_rate": 1, "gradient_norm": 1, "tokens_per_second": 1, "loss_scale": "x"})",
       R"({"step": 5, "loss": 1, "validation_loss": "x", "learning_rate": 1, "gradient_norm": 1, "tokens_per_second": 1})"}) {
    std::ofstream(json, std::ios::trunc) << objects << bad << "\n";
    const TrainingLog log(json, 9);
    CHECK(log.rows().size() == 4);
    REQUIRE(log.remarks().size() == 1);
    CHECK(log.remarks()[0].starts_with(dropped(json, "5, which is no row of a log: {\"step\": 5")));
    CHECK(log.remarks()[0].size() < 120 + json.string().size());
    CHECK(read_file(json) == objects);
  }
}

TEST_CASE("A log of an earlier version is read, and gets the column of the loss scale", "[training_log]") {
  const TemporaryFolder folder;
  for (const bool json : {false, true}) {
    const auto path = folder / (json ? "log.jsonl" : "log.csv");
    const std::string head =
        json ? "" : "step,loss,validation_loss,learning_rate,gradient_norm,tokens_per_second\n";
    const std::string line =
        json ? "{\"step\": 1, \"loss\": 2.5, \"validation_loss\": null, \"learning_rate\": "
               "0.5, \"gradient_norm\": 3, \"tokens_per_second\": 9"
             : "1,2.5,,0.5,3,9";
    std::ofstream(path, std::ios::trunc) << head << line << (json ? "}\n" : "\n");
    CHECK(read_log(path).size() == 1);
    TrainingLog log(path, 1);
    CHECK(log.remarks().empty());
    REQUIRE(log.rows().size() == 1);
    CHECK(same_row(log.rows()[0], {1, 2.5, std::nullopt, 0.5, 3, 9}));
    log.add({.step = 2, .loss_scale = 8});
    CHECK(read_file(path) ==
          (json ? line + ", \"loss_scale\": null}\n" +
                      "{\"step\": 2, \"loss\": 0, \"validation_loss\": null, \"learning_rate\": 0, "
                      "\"gradient_norm\": 0, \"tokens_per_second\": 0, \"loss_scale\": 8}\n"
                : head.substr(0, head.size() - 1) + ",loss_scale\n" + line + ",\n2,0,,0,0,0,8\n"));
  }
}

TEST_CASE("A row says whether its step was skipped", "[training_log]") {
  CHECK(LogRow{.gradient_norm = INFINITY, .loss_scale = 2}.skipped());
  CHECK(LogRow{.gradient_norm = NAN, .loss_scale = 2}.skipped());
  CHECK_FALSE(LogRow{.gradient_norm = 1, .loss_scale = 2}.skipped());
  CHECK_FALSE(LogRow{.gradient_norm = NAN}.skipped());
}

TEST_CASE("Numbers that are not finite stay in a log", "[training_log]") {
  const TemporaryFolder folder;
  for (const char* name : {"log.csv", "log.jsonl"}) {
    TrainingLog(folder / name, 0)
        .add({.step = 1, .loss = NAN, .learning_rate = 1, .gradient_norm = INFINITY});
    const TrainingLog log(folder / name, 1);
    CHECK(log.remarks().empty());
    REQUIRE(log.rows().size() == 1);
    CHECK(std::isnan(log.rows()[0].loss));
  }
}

TEST_CASE("A log that is as it should be is not written", "[training_log]") {
  const TemporaryFolder folder;
  const auto path = folder / "log.csv";
  TrainingLog(path, 0).add(row(1));
  std::filesystem::last_write_time(path, std::filesystem::file_time_type{});
  CHECK(TrainingLog(path, 1).rows().size() == 1);
  CHECK(std::filesystem::last_write_time(path) == std::filesystem::file_time_type{});
  CHECK(TrainingLog(path, 0).rows().empty());
  CHECK(std::filesystem::last_write_time(path) != std::filesystem::file_time_type{});
}

TEST_CASE("TrainingLog writes for process 0 alone and names a path that it cannot use", "[training_log]") {
  const TemporaryFolder folder;
  TrainingLog(folder / "other.csv", 0, /*rank=*/1).add(row(1));
  CHECK(names_in(folder.path()).empty());
  CHECK(test::value_error([&] {
          return TrainingLog(folder / "none" / "log.csv", 0).rows().size();
        }).starts_with("TrainingLog: " + (folder / "none" / "log.csv").string() + ": cannot create"));
}

namespace {

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t offset = text.find(what); offset != std::string::npos; offset = text.find(what, offset + 1))
    ++n;
  return n;
}

}  // namespace

TEST_CASE("loss_curve_svg draws every validation point and thins the training line", "[loss_curve]") {
  std::vector<LogRow> rows;
  for (int64_t step = 1; step <= 5000; ++step) {
    rows.push_back({.step = step, .loss = 4.0 / std::sqrt(static_cast<double>(step))});
    if (step % 1000 == 0) rows.back().validation_loss = 2.0;
  }
  rows[10].loss = NAN;
  const auto svg = loss_curve_svg(rows, "a < b & c");
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(count(svg, "<circle") == 5);
  CHECK(count(svg, "a &lt; b &amp; c") == 1);
  CHECK(count(svg, "nan") == 0);
  CHECK(svg.size() < 60000);
  const TemporaryFolder folder;
  save_loss_curve(folder / "loss.svg", rows);
  CHECK(read_file(folder / "loss.svg") == loss_curve_svg(rows));
}

TEST_CASE("loss_curve_svg puts known points where they belong", "[loss_curve]") {
  // Losses 1 and 3 at steps 0 and 10: the corners of the plot, 60..700 wide and 40..350 high.
  const auto svg = loss_curve_svg({{.step = 0, .loss = 3.0}, {.step = 10, .loss = 1.0}});
  CHECK(count(svg, "points=\"60.0,40.0 700.0,350.0 \"") == 1);
}

TEST_CASE("loss_curve_svg of nothing, of one row and of equal rows is a picture", "[loss_curve]") {
  for (const auto& rows : std::vector<std::vector<LogRow>>{
           {}, {{.step = 1, .loss = 2.0}}, {{.step = 1, .loss = 2.0}, {.step = 2, .loss = 2.0}}}) {
    const auto svg = loss_curve_svg(rows);
    CHECK(svg.ends_with("</svg>\n"));
    CHECK(count(svg, "nan") + count(svg, "inf") == 0);
  }
}

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
