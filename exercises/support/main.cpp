// Checks the exercises that are linked into this program, one line each: "exercise 3: solved", or the hint to
// read next and what was found. Exit status 1 if one is not solved.

#include <iostream>

#include "support/exercise.h"

int main() {
  bool solved = true;
  for (const auto& exercise : exercises::all()) {
    std::cout << "exercise " << exercise.number;
    if (const auto not_yet = exercises::run(exercise)) {
      std::cout << ", hint " << not_yet->hint << ": " << not_yet->found << "\n";
      solved = false;
    } else {
      std::cout << ": solved\n";
    }
  }
  return solved && std::cout.flush() ? 0 : 1;
}
