#pragma once

// The Python interpreter for tests that run programs. A test program that includes this header defines
// ATTENTIVE_PYTHON, the interpreter found by CMake.

#include <cstdlib>
#include <string>

#include <catch2/catch_test_macros.hpp>

#include "support/files.h"
#include "support/shell.h"

namespace attentive::test {

/// The interpreter that the environment variable ATTENTIVE_PYTHON names, else CMake's.
inline std::string python() {
  const char* named = std::getenv("ATTENTIVE_PYTHON");
  return named ? named : ATTENTIVE_PYTHON;
}

inline bool python_has(const std::string& modules) {
  return std::system(("'" + python() + "' -c 'import " + modules + "' > /dev/null 2>&1").c_str()) == 0;
}

/// Runs a program of this repository with tools/users/ and bench/ on its path, in `folder` if given, and
/// returns its output.
inline std::string run_python(const std::string& program, const std::string& arguments = {},
                              const std::string& folder = {}) {
  const std::string root = source_folder();
  return run_in_shell((folder.empty() ? "" : "cd '" + folder + "' && ") +
                      "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH='" + root + "/bench:" + root + "/tools/users' '" +
                      python() + "' '" + root + "/" + program + "' " + arguments);
}

}  // namespace attentive::test

#define NEEDS_PYTHON(modules)                                                                 \
  if (!::attentive::test::python_has(modules))                                                \
  SKIP(::attentive::test::python() << " cannot import " modules                               \
                                      "; ATTENTIVE_PYTHON=$(tools/checks/python_env) in the " \
                                      "environment names one that can")
