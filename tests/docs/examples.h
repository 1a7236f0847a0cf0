#pragma once

// The code that the pages show. An example is one function; the page shows its body unchanged, followed by
// its output. On the page, a line `<!-- example: name -->` precedes the block.

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

// All examples, file by file.
std::vector<Example>& examples();

inline bool add_example(const char* name, const char* file, void (*before)(), void (*run)()) {
  examples().push_back({name, file, before, run});
  return true;
}

// The body of an example as the page shows it. Throws std::runtime_error if the file has no such function.
std::string code_of(const Example& example);

// The output of an example, with four decimals, in a temporary folder of its own. An error that ends it is
// printed, too.
std::string output_of(const Example& example);

// The output of an example in the current folder.
std::string output_here(const Example& example);

}  // namespace attentive::test

#define EXAMPLE_AFTER(name, prepare)                                   \
  static void name();                                                  \
  [[maybe_unused]] static const bool name##_added =                    \
      ::attentive::test::add_example(#name, __FILE__, prepare, &name); \
  static void name()

#define EXAMPLE(name) EXAMPLE_AFTER(name, nullptr)
