#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <thread>
#include <utility>
#include <vector>

namespace attentive::test {

/// How a process ended.
struct Ended {
  int status = -1;  ///< of exit; -1 if a signal ended it
  int signal = 0;   ///< that ended it; 0 if none did
  std::string out;  ///< standard output and standard error
  int64_t lines() const { return std::count(out.begin(), out.end(), '\n'); }
  std::chrono::steady_clock::time_point when;
};

/// Real processes of one program, each with its own environment. Whatever happens, none is left behind: the destructor kills
/// and reaps those that still run.
class Processes {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes();

  /// Starts one. A variable whose text is empty is unset.
  void start(const std::vector<std::string>& command, const Variables& variables);
  /// Waits until the output of a process holds a text; false if it ends, or the time limit comes, before.
  bool wait_for_text(size_t process, const std::string& text);
  void send_signal(size_t process, int signal) const;
  /// Waits for the processes but those in `except`, which it then kills. At the time limit, kills all and throws.
  std::vector<Ended> finish(const std::vector<size_t>& except = {});

 private:
  struct Process {
    pid_t pid = 0;
    int output = -1;
    bool running = true;
    Ended ended;
  };
  void look();  // reads what has been written, and reaps who has ended
  bool late() const { return std::chrono::steady_clock::now() > limit_; }

  std::vector<Process> processes_;
  std::chrono::steady_clock::time_point limit_ = std::chrono::steady_clock::now() + std::chrono::seconds(120);
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

/// A server that is no store of a group.
class ForeignServer {
 public:
  enum class Manner {
    Silent,       ///< accepts and says nothing
    Drips,        ///< answers a byte a second
    Resets,       ///< resets each connection
    Babbles,      ///< answers as a server of web pages does
    StopsMidway,  ///< answers the first message as a store does, and nothing more
    GoesMidway,   ///< the same, and closes the connection
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

/// A port that was free a moment ago.
uint16_t free_port();

/// The environment that torchrun would give to a process, all of them on this machine.
Processes::Variables place(int64_t rank, int64_t size, uint16_t port);

/// The program distributed_worker, beside this one.
std::string worker();

/// Starts the worker program `size` times, and ends them. device: "cpu", or "cuda", where each process takes a GPU of its own.
std::vector<Ended> run_workers(const std::vector<std::string>& arguments, int64_t size,
                               const std::string& device = "cpu");
/// Starts the worker program `size` times.
void start_workers(Processes& processes, const std::vector<std::string>& arguments, int64_t size,
                   const std::string& device = "cpu");

/// The lines of a worker's output that are losses and parameters.
std::string numbers_in(const std::string& out);

/// Skips the test unless two processes can work on two GPUs here, and says why.
void need_two_gpus();

}  // namespace attentive::test
