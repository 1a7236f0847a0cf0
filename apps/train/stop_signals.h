#pragma once

#include <string>

/// From now on, these signals make stop_requested() return true, so that the run saves and ends: Ctrl-C
/// (SIGINT), SIGTERM, a closed terminal (SIGHUP), and a closed reader of the progress (SIGPIPE). Signals that
/// were ignored before stay ignored.
///
/// The first Ctrl-C or SIGTERM immediately prints `message`, if not empty, on standard error, because a step
/// and a save take time; the second one kills the program as usual.
void install_stop_signals(const std::string& message);

bool stop_requested();
