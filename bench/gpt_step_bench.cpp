// Trains the model of a preset a few steps at a time, as bench/gpt_peer.py asks, and tells how long they
// took.
//
//   bench/gpt_peer.py --text FILE --against build/release/bench/gpt_step_bench
//
// Reads lines "<steps>" from standard input; answers each with "<median seconds a step> <loss of the last
// step>".

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>

#include <attentive/text/char_tokenizer.h>
#include <attentive/train/language_model.h>
#include <attentive/train/trainer.h>

using namespace attentive;

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: gpt_step_bench FILE small|large SEED THREADS\n");
    return 2;
  }
  try {
    const std::string size = argv[2];
    at::set_num_threads(std::atoi(argv[4]));
    const auto text = read_text(argv[1]);
    const auto tokenizer = CharTokenizer::train(text);
    const auto tokens = tokenize(text, tokenizer);
    TrainerOptions options;
    options.seed = std::strtoull(argv[3], nullptr, 10);
    auto model_options = GPTOptions(tokenizer.vocab_size(), 64, 128, 4, 4);
    if (size == "large") {
      model_options = GPTOptions(tokenizer.vocab_size(), 256, 384, 6, 6).dropout(0.2);
      options.block = 256;
      options.batch = 64;
      options.steps = 5000;
    }
    at::manual_seed(options.seed);
    GPT model(model_options.bias(false).tied(true).init(GPTInit::Gpt2));
    Trainer trainer(model.ptr(), gpt_loss(model), tokens.training, tokens.validation, options);
    std::string line;
    while (std::getline(std::cin, line)) {
      std::vector<double> seconds;
      LogRow row;
      const auto processor = std::clock();
      for (int i = std::atoi(line.c_str()); i > 0; --i) {
        const auto start = std::chrono::steady_clock::now();
        row = trainer.step();
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
      std::sort(seconds.begin(), seconds.end());
      const auto used = static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC;
      const auto count = std::max<size_t>(seconds.size(), 1);
      std::printf("%.6f %.6f %.6f\n", seconds.empty() ? 0.0 : seconds[seconds.size() / 2],
                  used / static_cast<double>(count), row.loss);
      std::fflush(stdout);
    }
    return 0;
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "gpt_step_bench: %s\n", error.what_without_backtrace());
    return 1;
  }
}
