#pragma once

// Functions with which the checks of the exercises are written.

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace exercises {

/// Why an exercise is not solved yet: the finding, and the number of the hint in its README that helps next.
struct NotYet {
  int hint;
  std::string found;
};

struct Exercise {
  int number;
  void (*check)();
};

/// The exercises that are linked into the program, by number.
std::vector<Exercise>& all();
bool add(int number, void (*check)());

/// Runs the check. An exception from the exercise's code also counts as a finding.
std::optional<NotYet> run(const Exercise& exercise);

/// Ends a check with hint `hint` unless `holds`.
void want(bool holds, int hint, const std::string& otherwise);
/// Ends a check unless both tensors are equal, up to the rounding of their dtype.
void want_close(const at::Tensor& got, const at::Tensor& expected, int hint, const std::string& what);

/// Names a size in a message: "T = 3".
std::string with(const std::string& name, int64_t size);

}  // namespace exercises

#define EXERCISE(number)                                                                            \
  static void check_of_exercise();                                                                  \
  [[maybe_unused]] static const bool added_exercise = ::exercises::add(number, &check_of_exercise); \
  static void check_of_exercise()
