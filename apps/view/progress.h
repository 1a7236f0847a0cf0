#pragma once

#include <cstdio>
#include <string>
#include <unistd.h>

#include <fmt/format.h>

// A line on a terminal that shows the current activity. The destructor erases it.
class Progress {
 public:
  Progress() = default;
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r\x1b[K");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void say(const std::string& what) const {
    if (shown_) fmt::print(stderr, "\r\x1b[K{}", what);
  }

 private:
  bool shown_ = ::isatty(STDERR_FILENO) == 1;
};
