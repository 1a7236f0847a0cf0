#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace apps {

/// Exit statuses that differ between executables.
struct ExitStatuses {
  int failed = 1;  ///< an exception ended the program
  int usage = 2;   ///< the command line was invalid
};

/// The common part of every main(): adds --version, parses the command line, calls `work` and ends the
/// process with the exit status, without the destructors of static objects; under a sanitizer, returns it.
///
/// An exception becomes one line on standard error, "<name>: <message>", without a backtrace. If standard
/// output could not be written, the line is "<name>: cannot write to standard output: <reason>", and the exit
/// status is the result of `work`, or 1 if that is 0. A closed pipe (`<name> | head -1`) is not reported as
/// an error: the program ends silently, by SIGPIPE or, if that is ignored, with the status that a shell shows
/// for it.
///
///   return apps::run_main(app, argc, argv, [&] { return run(settings); });
int run_main(CLI::App& app, int argc, char** argv, const std::function<int()>& work,
             const ExitStatuses& statuses = {});

/// Flushes standard output. Throws std::system_error if it cannot be written, which run_main reports.
void flush_output();

/// Writes a line to standard error. A failure to write is ignored.
void print_error(const std::string& line);

}  // namespace apps
