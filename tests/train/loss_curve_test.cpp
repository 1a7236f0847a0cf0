#include <cmath>

#include <catch2/catch_test_macros.hpp>

#include <attentive/train/training_log.h>

#include "base/files.h"
#include "support/temporary_folder.h"

using namespace attentive;

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
