#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>

#include <attentive/train/training_log.h>

namespace attentive {

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
