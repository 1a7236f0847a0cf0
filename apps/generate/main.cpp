// attentive-generate: continues a prompt with a model from attentive-train or from Python.

#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <attentive/models/lora.h>
#include <attentive/models/model_folder.h>
#include <attentive/text/tokenizer.h>

#include "common/device.h"
#include "common/flags.h"
#include "common/language.h"
#include "common/run_main.h"

namespace {

using namespace attentive;

struct Settings {
  std::string model = "run";
  std::string adapter;  // empty: none
  std::optional<std::string> prompt;
  std::vector<int64_t> ids;
  std::string device = "auto";
  int threads = 0;
  bool no_cache = false;
  GenerateOptions generate{.max_new_tokens = 500, .sampling = {.temperature = 0.8}};
};

void declare(CLI::App& app, Settings& s) {
  app.add_option("--model", s.model,
                 "A folder of attentive-train, one checkpoint in it, or a folder of a Python model: " +
                     known_families({GPTImpl::kName, LlamaImpl::kName}))
      ->capture_default_str();
  app.add_option("--adapter", s.adapter,
                 "A folder of adapters for the model, of attentive-train --lora-rank or Python's peft");
  auto* prompt = app.add_option("--prompt", s.prompt,
                                "Text to continue; \"-\", or none with a pipe: standard input [a new line]");
  app.add_option("--ids", s.ids,
                 "Tokens to continue, as numbers: 1,15043,590; the new ones are written likewise")
      ->delimiter(',')
      ->check(apps::whole_number(0, std::numeric_limits<int32_t>::max()))
      ->excludes(prompt);
  app.add_option("--tokens", s.generate.max_new_tokens, "New tokens")
      ->check(apps::whole_number(0, apps::kMostTokens))
      ->capture_default_str();
  app.add_option("--temperature", s.generate.sampling.temperature, "0: always the most likely token")
      ->check(apps::number(0, 1e6))
      ->capture_default_str();
  app.add_option("--top-k", s.generate.sampling.top_k, "Only the k most likely tokens; 0: all")
      ->check(apps::whole_number(0, apps::kMostTokens))
      ->capture_default_str();
  app.add_option("--top-p", s.generate.sampling.top_p,
                 "Only the most likely tokens of this probability together")
      ->check(apps::number(0, 1, apps::Ends::WithoutLeast))
      ->capture_default_str();
  app.add_option("--seed", s.generate.seed)->check(apps::seed_number())->capture_default_str();
  app.add_flag("--slide", s.generate.slide,
               "At the end of the context forget its older half; otherwise stop");
  app.add_flag("--no-cache", s.no_cache, "Compute every token anew: the same text, slowly");
  apps::add_device(app, s.device);
  apps::add_threads(app, s.threads);
}

std::string prompt_of(const Settings& s) {
  const bool piped = !s.prompt && ::isatty(STDIN_FILENO) == 0;
  if (!piped && s.prompt != "-") return s.prompt.value_or("\n");
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  return text.empty() && !s.prompt ? "\n" : text;
}

void write(std::string_view text) {
  if (text.empty()) return;
  fmt::print("{}", text);
  apps::flush_output();
}

void run(Settings s) {
  if (s.threads > 0) at::set_num_threads(s.threads);
  const auto language = apps::load_language(s.model, apps::choose_device(s.device));
  if (!s.adapter.empty()) load_lora(s.adapter, language.model);
  s.generate.use_cache = !s.no_cache;
  s.generate.stop_tokens = language.stop_tokens;
  std::unique_ptr<StreamingDecoder> decoder;  // null: ids are printed
  const char* separator = "";
  s.generate.on_token = [&](int64_t id) {
    write(decoder ? decoder->push(id) : fmt::format("{}{}", separator, id));
    separator = ",";
    return true;
  };
  bool full = false;
  s.generate.on_end = [&](GenerationEnd why) { full = why == GenerationEnd::ContextFull; };
  auto ids = s.ids;
  if (ids.empty()) {
    const auto prompt = prompt_of(s);
    TORCH_CHECK_VALUE(language.tokenizer, "no tokenizer for --prompt: ", language.why_no_tokenizer,
                      "; --ids takes the prompt as ids");
    ids = language.tokenizer->encode_with_special_tokens(prompt);
    decoder = language.tokenizer->streaming_decoder(/*skip_special_tokens=*/true);
    decoder->follow(ids);
    write(prompt);
  }
  const auto made = generate(language.model, ids, s.generate).size();
  write((decoder ? decoder->finish() : "") + "\n");
  if (full) {
    apps::print_error(
        fmt::format("attentive-generate: stopped after {} of {} tokens: the model's context of {} is full; "
                    "--slide goes on",
                    made, s.generate.max_new_tokens, language.model.context_length()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Continues a text with a trained model.", "attentive-generate");
  Settings settings;
  declare(app, settings);
  return apps::run_main(app, argc, argv, [&] {
    run(settings);
    return 0;
  });
}
