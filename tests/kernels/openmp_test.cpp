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

// The threads of this process that run or wait.
int threads_of_process() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("Threads:")) return std::stoi(line.substr(8));
  }
  throw std::runtime_error("no Threads in /proc/self/status");
}

// Threads that take part in a loop of ours.
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
  const auto own = openmp_calls_of(""), of_libtorch = openmp_calls_of("libtorch_cpu.so");
  REQUIRE(own.contains("omp_get_max_threads"));
  REQUIRE(of_libtorch.contains("GOMP_parallel"));
  const auto runtime = own.at("omp_get_max_threads");
  INFO("omp_get_max_threads is that of " << runtime);
  for (const auto& calls : {own, of_libtorch}) {
    for (const auto& [function, file] : calls) {
      INFO(function << " is that of " << (file.empty() ? "none" : file));
      CHECK(file == runtime);
    }
  }
  auto loaded = loaded_openmp_runtimes();
  CHECK(loaded.erase(runtime) == 1);
#if defined(__clang__)
  // LLVM's runtime answers GNU's functions too. LibTorch's libgomp is loaded, as LibTorch names it, but nothing
  // is called in it.
  CHECK(std::filesystem::path(runtime).filename().string().starts_with("libomp"));
  CHECK(loaded.size() <= 1);
#else
  CHECK(loaded.empty());
#endif
}

// Counts threads, so it needs a process of its own: no test before it may have started some.
TEST_CASE("openmp: one thread stays one, and four are four for LibTorch and this package together",
          "[.][fresh_process]") {
  at::set_num_threads(1);
  (at::rand({2}).requires_grad_() * 2).sum().backward();  // what autograd starts by itself is not counted
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
