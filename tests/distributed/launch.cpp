#include "distributed/launch.h"

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sstream>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "distributed/environment.h"

namespace attentive::test {
namespace {

std::vector<std::string> environment_with(const Processes::Variables& variables) {
  std::vector<std::string> all;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(variables.begin(), variables.end(),
                                      [&](const auto& variable) { return variable.first == name; });
    if (!replaced) all.push_back(text);
  }
  for (const auto& [name, text] : variables) {
    if (!text.empty()) all.push_back(name + "=" + text);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (auto& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

void with_patience(const std::function<std::string(int64_t seconds)>& attempt) {
  std::string late;
  for (const int64_t seconds : {3, 20, 120, 600}) {
    late = attempt(seconds);
    if (late.empty()) return;
  }
  FAIL("late, although it had ten minutes: " << late);
}

Processes::~Processes() {
  for (auto& process : processes_) {
    if (process.running) {
      ::kill(process.pid, SIGKILL);
      ::waitpid(process.pid, nullptr, 0);
    }
    ::close(process.output);
  }
}

void Processes::start(const std::vector<std::string>& command, const Variables& variables) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  auto words = command;
  auto entries = environment_with(variables);
  Process process;
  const int failed = ::posix_spawn(&process.pid, words[0].c_str(), &actions, nullptr, pointers(words).data(),
                                   pointers(entries).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (failed != 0) {
    ::close(ends[0]);
    throw std::runtime_error("cannot start " + command[0]);
  }
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  process.output = ends[0];
  processes_.push_back(std::move(process));
}

void Processes::look() {
  for (auto& process : processes_) {
    int status = 0;
    const bool now_ended = process.running && ::waitpid(process.pid, &status, WNOHANG) == process.pid;
    char bytes[4096];
    for (ssize_t count; (count = ::read(process.output, bytes, sizeof bytes)) > 0;) {
      process.ended.out.append(bytes, static_cast<size_t>(count));
    }
    if (!now_ended) continue;
    process.running = false;
    process.ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    process.ended.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

bool Processes::wait_for_text(size_t process, const std::string& text) {
  while (true) {
    const bool ran = processes_[process].running;
    look();
    if (processes_[process].ended.out.find(text) != std::string::npos) return true;
    if (!ran) return false;
  }
}

void Processes::send_signal(size_t process, int signal) const {
  if (processes_[process].running) ::kill(processes_[process].pid, signal);
}

std::vector<Ended> Processes::finish(const std::vector<size_t>& except) {
  const auto awaited = [&](size_t i) { return std::find(except.begin(), except.end(), i) == except.end(); };
  const auto running = [&] {
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (awaited(i) && processes_[i].running) return true;
    }
    return false;
  };
  while (running()) look();
  for (const auto i : except) send_signal(i, SIGKILL);
  while (
      std::any_of(processes_.begin(), processes_.end(), [](const auto& process) { return process.running; }))
    look();
  std::vector<Ended> all;
  for (auto& process : processes_) all.push_back(process.ended);
  return all;
}

TakenPort::TakenPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;  // any address of this machine, any port
  socklen_t size = sizeof address;
  if (::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(socket_, 1) != 0 ||
      ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no free port");
  }
  port_ = ntohs(address.sin_port);
}

TakenPort::~TakenPort() {
  ::close(socket_);
}

ForeignServer::~ForeignServer() {
  over_ = true;
  thread_.join();
}

void ForeignServer::serve(Manner manner) {
  constexpr int kTick = 100;  // ms
  struct Guest {
    int socket;
    std::string said;
    size_t answered;
  };
  std::vector<Guest> guests;
  // A client begins with a byte and a 4-byte number, followed by a byte and 4 bytes that a store repeats.
  constexpr size_t kBegin = 6, kSize = 4;
  for (int tick = 0; !over_; ++tick) {
    pollfd door{taken_.socket(), POLLIN, 0};
    if (::poll(&door, 1, kTick) == 1) {
      guests.push_back({::accept4(taken_.socket(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK), "", 0});
      ++guests_;
    }
    for (auto& guest : guests) {
      char bytes[256];
      const auto count = ::recv(guest.socket, bytes, sizeof bytes, 0);
      if (count > 0) guest.said.append(bytes, static_cast<size_t>(count));
      const bool greeted = guest.said.size() >= kBegin + kSize;
      const auto answer = [&](const std::string& text) {
        ::send(guest.socket, text.data(), text.size(), MSG_NOSIGNAL);
        guest.answered += text.size();
      };
      if (manner == Manner::Resets) {
        const linger at_once{1, 0};
        ::setsockopt(guest.socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        ::close(std::exchange(guest.socket, -1));
      }
      if (manner == Manner::Babbles && greeted && guest.answered == 0)
        answer("HTTP/1.1 400 Bad Request\r\n\r\n");
      if (manner == Manner::Drips && greeted && guest.answered + 1 < kSize && tick % 20 == 0)
        answer(guest.said.substr(kBegin + guest.answered, 1));
      const bool midway = manner == Manner::StopsMidway || manner == Manner::GoesMidway;
      if (manner == Manner::GoesMidway && guest.answered > 0) ::close(std::exchange(guest.socket, -1));
      if (midway && greeted && guest.answered == 0) answer(guest.said.substr(kBegin, kSize));
    }
  }
  for (const auto& guest : guests) ::close(guest.socket);
}

uint16_t free_port() {
  return TakenPort().port();
}

Processes::Variables place(int64_t rank, int64_t size, uint16_t port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},
          {"GLOO_SOCKET_IFNAME", "lo"},
          {"OMP_NUM_THREADS", "1"}};
}

std::string worker() {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename("distributed_worker");
}

void start_workers(Processes& processes, const std::vector<std::string>& arguments, int64_t size,
                   const std::string& device) {
  std::vector<std::string> command{worker()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const auto port = free_port();
  for (int64_t rank = 0; rank < size; ++rank) {
    auto variables = place(rank, size, port);
    variables.emplace_back("ATTENTIVE_TEST_DEVICE", device);
    processes.start(command, variables);
  }
}

std::vector<Ended> run_workers(const std::vector<std::string>& arguments, int64_t size,
                               const std::string& device) {
  Processes processes;
  start_workers(processes, arguments, size, device);
  return processes.finish();
}

std::string numbers_in(const std::string& out) {
  std::istringstream lines(out);
  std::string line, numbers;
  while (std::getline(lines, line)) {
    if (line.rfind("loss ", 0) == 0 || line.rfind("0x", 0) == 0 || line.rfind("-0x", 0) == 0)
      numbers += line + "\n";
  }
  return numbers;
}

void need_two_gpus() {
  const auto devices = distributed::devices_here();
  if (!devices.nccl_lack.empty()) SKIP(devices.nccl_lack);
  if (devices.seen < 2) SKIP("needs two CUDA devices, LibTorch sees " << devices.seen);
}

}  // namespace attentive::test
