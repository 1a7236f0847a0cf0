#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>
#include <sys/wait.h>

namespace attentive::test {

/// Runs a command and returns its standard output. Throws std::runtime_error unless it exits with status 0.
inline std::string run_in_shell(const std::string& command) {
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot run " + command);
  std::string text;
  char buffer[4096];
  while (const size_t got = ::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, got);
  const int status = ::pclose(pipe);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw std::runtime_error(command + " failed:\n" + text);
  return text;
}

}  // namespace attentive::test
