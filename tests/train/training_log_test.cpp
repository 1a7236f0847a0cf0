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
