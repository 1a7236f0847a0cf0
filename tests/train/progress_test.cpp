#include <catch2/catch_test_macros.hpp>

#include <attentive/train/progress.h>

#include "support/temporary_folder.h"
#include "train/files.h"

using namespace attentive;

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
