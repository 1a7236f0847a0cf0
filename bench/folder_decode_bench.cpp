// Continues prompts with a model folder on request of bench/transformers_peer.py, and reports the time.
//
//   bench/transformers_peer.py --against build/release/bench/folder_decode_bench
//
// Reads prompts from standard input, one per line, as numbers. Answers each with the milliseconds from the
// first new token to the last, followed by the new tokens.

#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>

#include <attentive/models/generate.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/model_folder.h>

#include "common/run_main.h"

namespace {

using namespace attentive;
using Clock = std::chrono::steady_clock;
using Ids = std::vector<int64_t>;

std::function<Ids(const Ids&, const GenerateOptions&)> generator_of(const std::string& path) {
  const auto with = [](auto model) {
    return [model](const Ids& prompt, const GenerateOptions& options) mutable {
      return generate(*model, prompt, options);
    };
  };
  auto folder = read_model_folder(path);
  if (pretrained_model(folder) == GPTImpl::kName) return with(load_pretrained<GPT>(std::move(folder)));
  return with(load_pretrained<Llama>(std::move(folder)));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Continues each line of numbers on standard input.", "folder_decode_bench");
  std::string folder;
  int threads = 0;
  Clock::time_point first, last;
  GenerateOptions options{.sampling = {.temperature = 0}};
  app.add_option("FOLDER", folder, "a model that Python saved")->required();
  app.add_option("TOKENS", options.max_new_tokens)->check(CLI::Range(2, 100000))->required();
  app.add_option("THREADS", threads)->check(CLI::Range(1, 1024))->required();
  return apps::run_main(app, argc, argv, [&] {
    at::set_num_threads(threads);
    const auto continued = generator_of(folder);
    bool begun = false;
    options.on_token = [&](int64_t) {
      last = Clock::now();
      if (!begun) first = last;
      return begun = true;
    };
    std::string line;
    while (std::getline(std::cin, line)) {
      std::istringstream numbers(line);
      Ids prompt;
      for (int64_t id = 0; numbers >> id;) prompt.push_back(id);
      begun = false;
      const auto made = continued(prompt, options);
      std::printf("%.3f", std::chrono::duration<double, std::milli>(last - first).count());
      for (const auto id : made) std::printf(" %lld", static_cast<long long>(id));
      std::printf("\n");
      apps::flush_output();
    }
    return 0;
  });
}
