#pragma once

// The examples of docs/porting.md. Each is one function whose body stands on the page as it is here, and
// whose output stands below it.

#include <iostream>
#include <string>
#include <vector>

namespace attentive::test {

struct PortingExample {
  std::string name;
  std::string file;
  void (*run)();
};

// All of them, in the order of the page's sources.
std::vector<PortingExample>& porting_examples();

inline bool add_porting_example(const char* name, const char* file, void (*run)()) {
  porting_examples().push_back({name, file, run});
  return true;
}

}  // namespace attentive::test

#define PORTING(name)                                                 \
  static void name();                                                 \
  [[maybe_unused]] static const bool name##_added =                   \
      ::attentive::test::add_porting_example(#name, __FILE__, &name); \
  static void name()
