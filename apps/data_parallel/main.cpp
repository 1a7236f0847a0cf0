// attentive-data-parallel: trains a small GPT in several processes, each on its part of every batch.

#include <cstdint>
#include <string>

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>

#include <attentive/distributed/data_parallel.h>
#include <attentive/distributed/group.h>
#include <attentive/models/gpt.h>
#include <attentive/train/adamw.h>

#include "common/flags.h"
#include "common/run_main.h"

namespace {

constexpr int64_t kWords = 16;
constexpr int64_t kTokens = 24;

// Rows that count upwards from a random word in steps of a random size.
at::Tensor sequences(int64_t count) {
  const auto step = at::randint(1, 4, {count, 1}, at::kLong);
  return (at::randint(kWords, {count, 1}, at::kLong) + step * at::arange(kTokens)).remainder(kWords);
}

at::Tensor loss_of(attentive::GPT& model, const at::Tensor& rows) {
  const auto logits = model->forward(rows.narrow(1, 0, kTokens - 1));
  return torch::nn::functional::cross_entropy(logits.reshape({-1, kWords}),
                                              rows.narrow(1, 1, kTokens - 1).reshape(-1));
}

int run(int64_t steps, int64_t batch) {
  const auto group = attentive::Group::join();
  const int64_t rank = group->rank(), size = group->size(), rows = batch / size;
  TORCH_CHECK_VALUE(rows * size == batch, "--batch ", batch, " cannot be shared evenly by ", size,
                    " processes");
  attentive::GPT model(attentive::GPTOptions(kWords, kTokens, 32, 2, 2).tied(true));
  attentive::DataParallel parallel(*model, group);
  attentive::AdamW optimizer(*model, {.learning_rate = 3e-3});

  for (int64_t step = 0; step <= steps; ++step) {
    // All processes draw the same batch and use their rows of it.
    at::manual_seed(static_cast<uint64_t>(step));
    const auto loss = loss_of(model, sequences(batch).narrow(0, rank * rows, rows));
    optimizer.zero_grad();
    parallel.backward(loss);
    optimizer.step();
    const auto sum = loss.detach().clone();
    group->sum(sum);
    if (rank == 0 && step % 20 == 0) fmt::print("step {:3}   loss {:.4f}\n", step, sum.item<double>() / size);
  }
  if (rank == 0) {
    const auto sent = parallel.statistics();
    fmt::print("{} processes, {} buckets, {} messages a step\n", size, sent.buckets, sent.collectives);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a small GPT in as many processes as torchrun starts.", "attentive-data-parallel");
  int64_t steps = 100, batch = 32;
  app.add_option("--steps", steps, "Optimizer steps")
      ->capture_default_str()
      ->check(apps::whole_number(1, apps::kMostSteps));
  app.add_option("--batch", batch, "Rows of a batch")
      ->capture_default_str()
      ->check(apps::whole_number(1, apps::kMostRows));
  return apps::run_main(app, argc, argv, [&] {
    try {
      return run(steps, batch);
    } catch (const std::exception& error) {
      attentive::report_failure(error);  // shown by torchrun
      throw;
    }
  });
}
