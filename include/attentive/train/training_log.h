#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
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

/// Draws the losses of a run by step as an SVG picture: the training loss as a line, the validation loss as a
/// line with dots. The picture is self-contained and readable on light and dark backgrounds.
/// Rows whose loss is not finite are left out.
/// Memory: the text, with at most about 1,000 points per line.
///
///   attentive::save_loss_curve("run/loss.svg", log.rows(), "tinyshakespeare");
std::string loss_curve_svg(const std::vector<LogRow>& rows, const std::string& title = "");

/// Writes that picture, all or nothing. Throws c10::ValueError if the file cannot be written.
void save_loss_curve(const std::filesystem::path& path, const std::vector<LogRow>& rows,
                     const std::string& title = "");

/// Shows the progress of a run: on a terminal as one live line with a bar, otherwise as a plain line from
/// time to time.
///
/// The live line is always narrower than the terminal, whose width is queried for each draw; if it is
/// unknown, 80 columns are assumed. Failing writes to the stream are ignored.
///
///   attentive::Progress progress(stderr, /*total=*/2000);
///   progress.show(row);   // after every step; draws at most ten times a second
///   progress.note("saved run/step-00000500");
class Progress {
 public:
  /// `plain_every`: the number of steps between two lines if there is no terminal. Throws c10::ValueError
  /// without a stream.
  Progress(std::FILE* stream, int64_t total, int64_t first = 0, int64_t plain_every = 100);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const LogRow& row);
  /// Writes a separate line above the bar.
  void note(const std::string& text);

  /// The text that `show` draws, in at most `columns` columns: " 40% [########------------] 800/2000 loss
  /// 2.0125 val 2.0500 20513 tok/s ETA 0:47". If the space is too small, the bar is shortened, then left out,
  /// then the speed, the remaining time, the losses and the steps.
  static std::string format(const LogRow& row, int64_t total, double seconds_left, bool bar,
                            int64_t columns = std::numeric_limits<int64_t>::max());

 private:
  void clear();

  std::FILE* stream_;
  bool terminal_;
  int64_t total_;
  int64_t first_;
  int64_t plain_every_;
  bool drawn_ = false;
  std::optional<double> validation_;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace attentive
