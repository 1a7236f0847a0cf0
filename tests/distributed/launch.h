#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <utility>
#include <vector>

namespace attentive::test {

/// How a process ended.
struct Ended {
  int status = -1;  ///< the exit status; -1 if a signal ended it
  int signal = 0;   ///< the signal that ended it; 0 if none did
  std::string out;  ///< standard output and standard error
  int64_t lines() const { return std::count(out.begin(), out.end(), '\n'); }
};

/// Calls `attempt` with a timeout for groups that wait in vain, and with longer ones as long as it says what
/// was late for another reason: on a machine that starves its processes, a timeout that is short elsewhere
/// ends them before they do what the test is about. The last timeout is ten minutes.
void with_patience(const std::function<std::string(int64_t seconds)>& attempt);

/// Runs real processes of one program, each with its own environment. Nothing here has a time limit but that
/// of CTest. None is left behind: the destructor kills and reaps those that still run.
class Processes {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes();

  /// Starts a process. A variable whose text is empty is unset.
  void start(const std::vector<std::string>& command, const Variables& variables);
  /// Waits until a process's output contains a text; false if it ends before.
  bool wait_for_text(size_t process, const std::string& text);
  /// Does nothing if the process has ended.
  void send_signal(size_t process, int signal) const;
  /// Waits for all processes except those in `except`, which it then kills.
  std::vector<Ended> finish(const std::vector<size_t>& except = {});

 private:
  struct Process {
    pid_t pid = 0;
    int output = -1;
    bool running = true;
    Ended ended;
  };
  void look();  // reads pending output, and reaps ended processes

  std::vector<Process> processes_;
};

/// A port of this machine on which this process listens.
class TakenPort {
 public:
  TakenPort();
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  ~TakenPort();
  uint16_t port() const { return port_; }
  int socket() const { return socket_; }

 private:
  int socket_ = -1;
  uint16_t port_ = 0;
};

/// A server that is not a group's store.
class ForeignServer {
 public:
  enum class Manner {
    Silent,       ///< accepts and sends nothing
    Drips,        ///< answers one byte every two seconds, and never the last one
    Resets,       ///< resets each connection
    Babbles,      ///< answers like a web server
    StopsMidway,  ///< answers the first message like a store, and nothing more
    GoesMidway,   ///< answers the first message like a store, and closes the connection
  };
  explicit ForeignServer(Manner manner) : thread_([this, manner] { serve(manner); }) {}
  ForeignServer(const ForeignServer&) = delete;
  ForeignServer& operator=(const ForeignServer&) = delete;
  ~ForeignServer();
  uint16_t port() const { return taken_.port(); }
  /// How many connections it has accepted.
  int64_t guests() const { return guests_; }

 private:
  void serve(Manner manner);

  TakenPort taken_;
  std::atomic<bool> over_{false};
  std::atomic<int64_t> guests_{0};
  std::thread thread_;
};

/// Returns a port that was free a moment ago.
uint16_t free_port();

/// The environment that torchrun would give to a process, all of them on this machine.
Processes::Variables place(int64_t rank, int64_t size, uint16_t port);

/// The path of the program distributed_worker, in the same folder as this one.
std::string worker();

/// Runs the worker program `size` times and waits for the end. device: "cpu", or "cuda" with one GPU per
/// process.
std::vector<Ended> run_workers(const std::vector<std::string>& arguments, int64_t size,
                               const std::string& device = "cpu");
/// Starts the worker program `size` times.
void start_workers(Processes& processes, const std::vector<std::string>& arguments, int64_t size,
                   const std::string& device = "cpu");

/// The lines of a worker's output that are losses and parameters.
std::string numbers_in(const std::string& out);

/// Skips the test, with the reason, unless two processes can use two GPUs here.
void need_two_gpus();

}  // namespace attentive::test
