#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include <attentive/train/training_log.h>

namespace attentive {

/// Shows how far a run is: one live line with a bar on a terminal, a plain line now and then otherwise.
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

  /// What `show` draws: "  40% [########------------]  800/2000 loss 2.01 val 2.05 20513 tok/s ETA 0:47".
  static std::string format(const LogRow& row, int64_t total, double seconds_left, bool bar);

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
