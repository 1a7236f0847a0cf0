#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace attentive {

/// One line of a training log.
struct LogRow {
  int64_t step = 0;
  double loss = 0.0;                                     ///< of the step's batch, in nats per token
  std::optional<double> validation_loss = std::nullopt;  ///< of the whole validation text, if evaluated
  double learning_rate = 0.0;
  double gradient_norm = 0.0;  ///< of the unscaled gradients, before clipping
  double tokens_per_second = 0.0;
  std::optional<double> loss_scale = std::nullopt;  ///< the factor of the loss, if it was scaled

  /// Whether the step changed nothing, because the gradients of a scaled loss overflowed.
  bool skipped() const { return loss_scale && !std::isfinite(gradient_norm); }
};

/// A log file of a run: JSON lines if its name ends in ".jsonl", otherwise CSV with a header. A file of an
/// earlier version, without loss_scale, is read, and gets the column when it is opened.
///
/// Every row is written immediately, so a killed run leaves at most its last line incomplete. Only process 0
/// of a group writes; in the others, there is no file.
///
///   attentive::TrainingLog log("run/log.csv", /*from_step=*/0);
///   log.add({.step = 1, .loss = 4.2});
class TrainingLog {
 public:
  /// Opens the file and keeps the rows up to `from_step`: later rows belong to steps that a resumed run
  /// repeats. A line that is not a row, because it was cut off or edited, is dropped and mentioned in
  /// `remarks`. A file that needs no change is not rewritten. Throws c10::ValueError if the file cannot be
  /// read or written.
  TrainingLog(std::filesystem::path path, int64_t from_step, int64_t rank = 0);

  /// Throws c10::ValueError if the row cannot be written.
  void add(const LogRow& row);
  /// All rows, beginning with those of earlier runs.
  const std::vector<LogRow>& rows() const { return rows_; }
  /// The lines that were dropped when the file was opened: a sentence for each, with its number and its text.
  const std::vector<std::string>& remarks() const { return remarks_; }

 private:
  std::filesystem::path path_;
  bool writes_;
  std::vector<LogRow> rows_;
  std::vector<std::string> remarks_;
};

/// Reads a log; lines that are not rows and an incomplete last line are skipped. Throws c10::ValueError if
/// the file cannot be read.
std::vector<LogRow> read_log(const std::filesystem::path& path);

}  // namespace attentive
