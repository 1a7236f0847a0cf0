#include <filesystem>
#include <fstream>
#include <mutex>
#include <omp.h>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

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

void run_attention() {
  const auto leaf = [] { return at::rand({1, 8, 512, 64}).requires_grad_(); };
  attention(leaf(), leaf(), leaf(), {.causal = Causal::BottomRight}).sum().backward();
}

void run_libtorch() {
  at::mm(at::rand({512, 512}), at::rand({512, 512})).exp_();
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
