#include <cmath>
#include <fstream>

#include <catch2/catch_test_macros.hpp>

#include <attentive/train/training_log.h>

#include "base/files.h"
#include "support/errors.h"
#include "support/temporary_folder.h"

using namespace attentive;

namespace {

LogRow row(int64_t step) {
  LogRow r{step, 1.0 / static_cast<double>(step), std::nullopt, 1e-3, 0.7, 12345.6789};
  if (step % 2 == 0) r.validation_loss = 0.1 * static_cast<double>(step);
  return r;
}

bool same(const LogRow& a, const LogRow& b) {
  return a.step == b.step && a.loss == b.loss && a.validation_loss == b.validation_loss &&
         a.learning_rate == b.learning_rate && a.gradient_norm == b.gradient_norm &&
         a.tokens_per_second == b.tokens_per_second;
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
    for (int64_t step = 1; step <= 6; ++step) CHECK(same(rows[static_cast<size_t>(step - 1)], row(step)));
  }
  CHECK(read_file(folder / "log.csv")
            .starts_with("step,loss,validation_loss,learning_rate,gradient_norm,tokens_per_second\n1,1,,0."
                         "001,0.7,12345.6789\n"
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

TEST_CASE("TrainingLog writes for process 0 alone and names a path that it cannot use", "[training_log]") {
  const TemporaryFolder folder;
  TrainingLog(folder / "other.csv", 0, /*rank=*/1).add(row(1));
  CHECK(names_in(folder.path()).empty());
  CHECK(test::value_error([&] {
          return TrainingLog(folder / "none" / "log.csv", 0).rows().size();
        }).starts_with("TrainingLog: " + (folder / "none" / "log.csv").string() + ": cannot create"));
}
