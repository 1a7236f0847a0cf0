// Trains the model of a preset a few steps at a time on request of bench/gpt_peer.py, and reports the time.
//
//   bench/gpt_peer.py --text FILE --against build/release/bench/gpt_step_bench
//
// Reads lines "<steps>" from standard input; answers each with "<median seconds a step> <loss of the last
// step>".

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>

#include <attentive/text/tokenizer.h>
#include <attentive/train/language_model.h>
#include <attentive/train/trainer.h>

#include "common/run_main.h"
#include "support/timing.h"

using namespace attentive;

int main(int argc, char** argv) {
  CLI::App app("Trains the model of a preset as many steps as each line of standard input says.",
               "gpt_step_bench");
  std::string file, size;
  TrainerOptions options;
  int threads = 0;
  std::string device = "cpu";
  bool autocast = false;
  int64_t batch = 0;
  app.add_option("FILE", file, "text to learn")->required();
  app.add_option("SIZE", size)->check(CLI::IsMember({"small", "large"}))->required();
  app.add_option("SEED", options.seed)->required();
  app.add_option("THREADS", threads)->check(CLI::Range(1, 1024))->required();
  app.add_option("--device", device)->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  app.add_flag("--autocast", autocast, "to bfloat16");
  app.add_option("--batch", batch, "rows of a step, as in the preset if not given")
      ->check(CLI::PositiveNumber);
  return apps::run_main(app, argc, argv, [&] {
    at::set_num_threads(threads);
    const auto text = read_text(file);
    const auto tokenizer = CharTokenizer::train(text);
    const auto tokens = tokenize(text, tokenizer);
    auto model_options = GPTOptions(tokenizer.vocab_size(), 64, 128, 4, 4);
    if (size == "large") {
      model_options = GPTOptions(tokenizer.vocab_size(), 256, 384, 6, 6).dropout(0.2);
      options.block = 256;
      options.batch = 64;
      options.steps = 5000;
    }
    if (batch > 0) options.batch = batch;
    at::manual_seed(options.seed);
    GPT model(model_options.bias(false).tied(true).init(GPTInit::Gpt2));
    options.device = at::Device(device);
    if (autocast) options.autocast = at::kBFloat16;
    model->to(options.device);
    Trainer trainer(model.ptr(), language_model_loss(model), tokens.training, tokens.validation, options);
    std::string line;
    while (std::getline(std::cin, line)) {
      std::vector<double> seconds;
      LogRow row;
      const auto processor = std::clock();
      for (int i = std::atoi(line.c_str()); i > 0; --i) {
        const bench::Timer timer;
        row = trainer.step();
        seconds.push_back(timer.seconds());
      }
      const auto used = static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC;
      const auto count = std::max<size_t>(seconds.size(), 1);
      std::printf("%.6f %.6f %.6f\n", bench::median_of(seconds), used / static_cast<double>(count), row.loss);
      apps::flush_output();
    }
    return 0;
  });
}
