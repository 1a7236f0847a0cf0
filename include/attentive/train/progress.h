#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>

#include <attentive/train/training_log.h>

namespace attentive {

/// Shows how far a run is: one live line with a bar on a terminal, a plain line now and then otherwise.
///
/// The live line is always narrower than the terminal, whose width is asked for at each draw; where it is
/// unknown, 80 columns. A stream that cannot be written is no error.
///
///   attentive::Progress progress(stderr, /*total=*/2000);
///   progress.show(row);   // after every step; draws at most ten times a second
///   progress.note("saved run/step-00000500");
class Progress {
 public:
  /// `plain_every`: steps between two lines where there is no terminal. Throws c10::ValueError without a
  /// stream.
  Progress(std::FILE* stream, int64_t total, int64_t first = 0, int64_t plain_every = 100);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const LogRow& row);
  /// A line of its own, above the bar.
  void note(const std::string& text);

  /// What `show` draws: " 40% [########------------] 800/2000 loss 2.0125 val 2.0500 20513 tok/s ETA 0:47".
  /// In at most `columns`: the bar becomes shorter and goes, then the speed, the time left, the losses and
  /// the steps.
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
