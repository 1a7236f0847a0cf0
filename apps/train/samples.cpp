#include "samples.h"

#include <filesystem>

#include <fmt/format.h>

#include "hints.h"
#include "settings.h"
#include "start.h"

namespace {

// Replaces control characters: a model's text may hold bytes that a terminal obeys.
std::string harmless(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < ' ' && c != '\n' && c != '\t') || byte == 127) c = '?';
  }
  return text;
}

}  // namespace

Samples::Samples(const Settings& settings, const Start& start, std::string_view text, int64_t from_step)
    : every_(settings.sample_every),
      language_(start.language),
      options_{.prompt =
                   settings.sample_prompt.value_or(first_prompt(text, start.language.model.context_length())),
               .tokens = settings.sample_tokens,
               .seed = start.trainer.seed},
      file_(std::filesystem::path(settings.out) / "samples.txt", from_step) {
  (void)attentive::sample_text(language_, {.prompt = options_.prompt, .tokens = 0});
}

void Samples::after(int64_t step, attentive::Progress& progress) {
  if (step % every_ != 0) return;
  const auto text = attentive::sample_text(language_, options_);
  file_.add(step, text);
  progress.note(fmt::format("after step {}: {}", step, harmless(text)));
}
