// A training step of GPT-2 (124M) in several processes, each of which has rows of its own, a copy of the
// parameters and gradients, and a share of the moments. One process is the baseline.
//
//   OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 --no-python build/release/bench/group_step_bench

#include <cstdint>
#include <vector>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <attentive/distributed/data_parallel.h>
#include <attentive/distributed/group.h>
#include <attentive/train/adamw.h>

#include "common/run_main.h"
#include "support/gpt2.h"
#include "support/memory.h"
#include "support/timing.h"

using namespace attentive;

namespace {

void run(int64_t tokens, int64_t rows, int rounds) {
  const auto group = Group::join();
  at::manual_seed(1);
  auto model = bench::gpt2();
  DataParallel parallel(*model, group);
  double steady = 0;  // bytes of the moments, which exist before a step is measured
  for (const auto& parameter : model->parameters())
    steady += 2.0 * static_cast<double>(parameter.nbytes()) / static_cast<double>(group->size());
  ShardedAdamW optimizer(*model, group, {.learning_rate = 1e-5});
  const auto ids = bench::gpt2_ids(rows * group->size(), tokens).narrow(0, rows * group->rank(), rows);
  const auto step = [&] {
    optimizer.zero_grad();
    parallel.backward(model->loss(ids, ids.roll(-1, 1)));
    optimizer.step();
  };
  step();
  optimizer.zero_grad();
  const double bytes = bench::peak_tensor_growth(step) + steady;
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    const bench::Timer timer;
    step();
    seconds.push_back(timer.seconds());
  }
  if (group->rank() != 0) return;
  fmt::print(
      "step of GPT-2 124M, {} processes of {} threads, {} rows of {} tokens each: {:.2f} s, {:.0f} MiB\n",
      group->size(), at::get_num_threads(), rows, tokens, bench::median_of(seconds), bytes / (1 << 20));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A training step in as many processes as torchrun starts.", "group_step_bench");
  int64_t tokens = 512, rows = 1;
  int rounds = 5;
  app.add_option("--tokens", tokens)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--rows", rows, "of each process")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  return apps::run_main(app, argc, argv, [&] {
    run(tokens, rows, rounds);
    return 0;
  });
}
