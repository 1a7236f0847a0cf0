#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace attentive {

/// One line of a training log.
struct LogRow {
  int64_t step = 0;
  double loss = 0.0;  ///< of that step's batch, nats a token
  std::optional<double> validation_loss =
      std::nullopt;  ///< of the whole validation text, where it was measured
  double learning_rate = 0.0;
  double gradient_norm = 0.0;
  double tokens_per_second = 0.0;
};

/// The rows of a run in a file: JSON lines if its name ends in ".jsonl", CSV with a header otherwise.
///
/// Every row is written at once, so a killed run leaves at most its last line incomplete. Process 0 of a
/// group writes; the others keep no file.
///
///   attentive::TrainingLog log("run/log.csv", /*from_step=*/0);
///   log.add({.step = 1, .loss = 4.2});
class TrainingLog {
 public:
  /// Opens the file and keeps the rows up to `from_step`: those behind it belong to steps that a resumed run
  /// does again. Throws c10::ValueError if the file cannot be read or written.
  TrainingLog(std::filesystem::path path, int64_t from_step, int64_t rank = 0);

  /// Throws c10::ValueError if the disk refuses.
  void add(const LogRow& row);
  /// All rows, those of earlier runs first.
  const std::vector<LogRow>& rows() const { return rows_; }

 private:
  std::filesystem::path path_;
  bool writes_;
  std::vector<LogRow> rows_;
};

/// Reads a log; lines that are incomplete are passed over. Throws c10::ValueError if it cannot be read.
std::vector<LogRow> read_log(const std::filesystem::path& path);

}  // namespace attentive
