#pragma once

#include <string>

/// From now on these ask the run to save and end, which stop_requested() tells, where they were not ignored
/// before: Ctrl-C (SIGINT) and SIGTERM, a closed terminal (SIGHUP), and progress that nobody reads any more
/// (SIGPIPE).
///
/// The first Ctrl-C or SIGTERM prints `message` (nothing if it is empty) on standard error at once, for a
/// step and a save take their time; the second one kills as usual.
void install_stop_signals(const std::string& message);

bool stop_requested();
