#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <omp.h>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/functional/attention.h>

#include "support/openmp_runtimes.h"

using namespace attentive;
using namespace attentive::test;

namespace {

// The number of threads of this process, running or waiting.
int threads_of_process() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("Threads:")) return std::stoi(line.substr(8));
  }
  throw std::runtime_error("no Threads in /proc/self/status");
}

// The number of threads that take part in a parallel loop of this package.
size_t threads_of_loop() {
  std::set<std::thread::id> threads;
  std::mutex mutex;
  at::parallel_for(0, 64, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  return threads.size();
}

// The file that LLVM's runtime keeps for a process.
std::filesystem::path registration_of(pid_t process) {
  return "/dev/shm/__KMP_REGISTERED_LIB_" + std::to_string(process) + "_" + std::to_string(::getuid());
}

// Empty registrations of the processes that are numbered next, as killed processes leave them.
class LeftRegistrations {
 public:
  explicit LeftRegistrations(pid_t last) {
    for (pid_t process = last + 1; process <= last + 64; ++process) {
      if (auto* file = std::fopen(registration_of(process).c_str(), "wx")) {
        std::fclose(file);
        left_.insert(process);
      }
    }
  }
  ~LeftRegistrations() {
    for (const auto process : left_) {
      std::error_code none;
      const auto file = registration_of(process);
      if (std::filesystem::file_size(file, none) == 0) std::filesystem::remove(file, none);
    }
  }
  LeftRegistrations(const LeftRegistrations&) = delete;
  LeftRegistrations& operator=(const LeftRegistrations&) = delete;

  bool contains(pid_t process) const { return left_.contains(process); }

 private:
  std::set<pid_t> left_;
};

#if defined(__clang__)
struct Copy {
  pid_t process;
  bool found_empty_registration;
};

Copy copy_of_this_process() {
  const pid_t process = ::fork();
  if (process == 0) {
    std::error_code none;  // there is no such file, unless the copy has registered itself
    ::_exit(std::filesystem::file_size(registration_of(::getpid()), none) == 0);
  }
  int status = 0;
  if (process < 0 || ::waitpid(process, &status, 0) != process || !WIFEXITED(status))
    throw std::runtime_error("no copy of this process");
  return {process, WEXITSTATUS(status) != 0};
}
#endif

void run_attention() {
  const auto x = at::rand({1, 8, 512, 64}).requires_grad_();
  attention(x, x, x, {.causal = Causal::BottomRight}).sum().backward();
}

void run_libtorch() {
  const auto x = at::rand({512, 512});
  at::mm(x, x).exp_();
}

}  // namespace

TEST_CASE("openmp: one runtime serves LibTorch and this package", "[openmp]") {
  const auto program_calls = openmp_calls_of(""), libtorch_calls = openmp_calls_of("libtorch_cpu.so");
  REQUIRE(program_calls.contains("omp_get_max_threads"));
  REQUIRE(libtorch_calls.contains("GOMP_parallel"));
  const auto runtime = program_calls.at("omp_get_max_threads");
  INFO("omp_get_max_threads is that of " << runtime);
  for (const auto& calls : {program_calls, libtorch_calls}) {
    for (const auto& [function, file] : calls) {
      INFO(function << " is that of " << (file.empty() ? "none" : file));
      CHECK(file == runtime);
    }
  }
  auto loaded = loaded_openmp_runtimes();
  CHECK(loaded.erase(runtime) == 1);
#if defined(__clang__)
  // LLVM's runtime also provides GNU's functions. LibTorch's libgomp is loaded as a dependency of LibTorch,
  // but none of its functions are called.
  CHECK(std::filesystem::path(runtime).filename().string().starts_with("libomp"));
  CHECK(loaded.size() <= 1);
#else
  CHECK(loaded.empty());
#endif
}

TEST_CASE("openmp: a copy of this process removes what a killed process of its number left", "[openmp]") {
#if defined(__clang__)
  // Other processes may take the next numbers.
  for (int attempt = 0; attempt < 100; ++attempt) {
    const LeftRegistrations left(copy_of_this_process().process);
    const auto copy = copy_of_this_process();
    if (!left.contains(copy.process)) continue;
    CHECK(!copy.found_empty_registration);
    return;
  }
  FAIL("no copy had one of the next 64 numbers");
#else
  SKIP("only LLVM's runtime keeps such files");
#endif
}

// This test counts threads, so it needs a separate process in which no earlier test has started any.
TEST_CASE("openmp: one thread stays one, and four are four for LibTorch and this package together",
          "[.][fresh_process]") {
  at::set_num_threads(1);
  (at::rand({2}).requires_grad_() * 2).sum().backward();  // threads that autograd starts are not counted
  const auto before = threads_of_process();
  run_attention();
  CHECK(threads_of_process() == before);
  run_libtorch();
  CHECK(threads_of_process() == before);
  CHECK(omp_get_max_threads() == 1);
  CHECK(threads_of_loop() == 1);

  at::set_num_threads(4);
  const auto idle = threads_of_process();
  run_attention();
  CHECK(threads_of_process() == idle + 3);
  run_libtorch();
  CHECK(threads_of_process() == idle + 3);
  CHECK(omp_get_max_threads() == 4);
  CHECK(threads_of_loop() == 4);

  at::set_num_threads(1);
  CHECK(omp_get_max_threads() == 1);
  CHECK(threads_of_loop() == 1);
}
