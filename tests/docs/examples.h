#pragma once

// The code that the pages show. An example is one function, whose body stands on a page as it is here, and
// below it what it prints. On the page a line `<!-- example: name -->` comes before the block.

#include <iostream>
#include <string>
#include <vector>

namespace attentive::test {

struct Example {
  std::string name;
  std::string file;
  void (*before)();  // prepares the folder that the example runs in; may be null
  void (*run)();
};

// All of them, file by file.
std::vector<Example>& examples();

inline bool add_example(const char* name, const char* file, void (*before)(), void (*run)()) {
  examples().push_back({name, file, before, run});
  return true;
}

// The body as the page shows it. Throws std::runtime_error if the file has no such function.
std::string code_of(const Example& example);

// What it prints, with four decimals, in a temporary folder of its own; an error that it ends with is printed
// too.
std::string output_of(const Example& example);

// The same in the current folder.
std::string output_here(const Example& example);

}  // namespace attentive::test

#define EXAMPLE_AFTER(name, prepare)                                   \
  static void name();                                                  \
  [[maybe_unused]] static const bool name##_added =                    \
      ::attentive::test::add_example(#name, __FILE__, prepare, &name); \
  static void name()

#define EXAMPLE(name) EXAMPLE_AFTER(name, nullptr)
