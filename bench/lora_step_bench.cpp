// Trains the adapters of a model folder a step at a time on request of bench/lora_peer.py, and reports time,
// loss and memory.
//
//   bench/lora_peer.py --against build/release/bench/lora_step_bench
//
// For each line of standard input it does one step and answers "<seconds> <loss> <peak bytes>": the largest
// resident memory of the process since it started.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <CLI/CLI.hpp>

#include <attentive/models/any_language_model.h>
#include <attentive/models/lora.h>
#include <attentive/train/adamw.h>

#include "common/run_main.h"
#include "support/memory.h"
#include "support/timing.h"

using namespace attentive;

namespace {

at::Tensor read_ids(const std::string& path) {
  std::ifstream file(path);
  std::vector<int64_t> ids;
  for (int64_t id = 0; file >> id;) ids.push_back(id);
  TORCH_CHECK_VALUE(ids.size() > 1, path, ": expected at least 2 token ids, got ", ids.size());
  return at::tensor(ids, at::kLong).unsqueeze(0);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains the adapters of a model folder, one step for each line of standard input.",
               "lora_step_bench");
  std::string folder, adapters, ids_file;
  int threads = 0;
  double learning_rate = 1e-4;
  app.add_option("FOLDER", folder, "model in Hugging Face's format")->required();
  app.add_option("ADAPTERS", adapters, "adapters in peft's format")->required();
  app.add_option("IDS", ids_file, "a text file of token ids; each is the target of the one before")
      ->required();
  app.add_option("THREADS", threads)->check(CLI::Range(1, 1024))->required();
  app.add_option("--learning-rate", learning_rate)->capture_default_str();
  return apps::run_main(app, argc, argv, [&] {
    at::set_num_threads(threads);
    const auto ids = read_ids(ids_file), inputs = ids.narrow(1, 0, ids.size(1) - 1),
               targets = ids.narrow(1, 1, ids.size(1) - 1);
    const auto model = AnyLanguageModel::load_pretrained(read_model_folder(folder));
    model.visit([](const auto& holder) { holder.ptr()->options.checkpoint(1); });
    const auto lora = load_lora(adapters, model.ptr());
    model.module().train();
    AdamW optimizer(model.module(), {.learning_rate = learning_rate, .weight_decay = 0.0});
    for (std::string line; std::getline(std::cin, line);) {
      const bench::Timer timer;
      optimizer.zero_grad();
      const auto loss = model.loss(inputs, targets);
      loss.backward();
      optimizer.step();
      std::printf("%.6f %.6f %.0f\n", timer.seconds(), loss.item<double>(), bench::peak_bytes());
      apps::flush_output();
    }
    return 0;
  });
}
