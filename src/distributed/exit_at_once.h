#pragma once

namespace attentive::distributed {

/// From now on, the end of this process waits for no thread: `exit` flushes the streams, runs the handlers that were registered
/// after this call, and ends the process with its status. For a group that has failed: its threads still wait for processes that do
/// not come, and would use what the destructors of global objects destroy. Does nothing where the program does not want it.
void exit_at_once();
/// Whether it does.
void allow_exit_at_once(bool allowed);

}  // namespace attentive::distributed
