#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace apps {

/// Exit statuses that are not the same in every executable.
struct ExitStatuses {
  int failed = 1;  ///< an exception ended the work
  int usage = 2;   ///< the command line was not understood
};

/// What every main() shares: adds --version, parses the command line, calls `work` and returns the exit
/// status.
///
/// An exception becomes one line on standard error, "<name>: <message>", without a backtrace. If standard
/// output could not be written, the line is "<name>: cannot write to standard output: <reason>" and the exit
/// status what `work` returned, or 1 where that is 0. A reader that has gone away (`<name> | head -1`) is no
/// error to report: the program ends silently, by SIGPIPE or, where that is ignored, with the status that a
/// shell shows for it.
///
///   return apps::run_main(app, argc, argv, [&] { return run(settings); });
int run_main(CLI::App& app, int argc, char** argv, const std::function<int()>& work,
             const ExitStatuses& statuses = {});

/// Flushes standard output. Throws std::system_error if it cannot be written, which run_main reports.
void flush_output();

/// Writes a line to standard error. A standard error that cannot be written is no reason to stop.
void print_error(const std::string& line);

}  // namespace apps
