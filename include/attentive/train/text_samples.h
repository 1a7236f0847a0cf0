#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <attentive/models/generate.h>
#include <attentive/train/language_model.h>

namespace attentive {

struct TextSampleOptions {
  std::string prompt = "\n";
  int64_t tokens = 100;  ///< new ones, fewer if a stop token comes
  SamplingOptions sampling = {.temperature = 0.8};
  uint64_t seed = 0;
};

/// What a language model makes of a prompt: the prompt as it is, and behind it the text that the tokenizer's
/// decoder makes of the new tokens, without special ones. Bytes of half a character are U+FFFD, as in Python's
/// `decode`. The older half of a full context is dropped. The model's mode and the default generators are left as they were: a training run that
/// asks for samples goes on with the same bits.
/// Throws c10::ValueError without a tokenizer, for a prompt that it cannot spell or that is empty, and for
/// invalid options.
///
///   auto text = attentive::sample_text(language, {.prompt = "ROMEO:", .tokens = 60});
std::string sample_text(const LanguageModel& language, const TextSampleOptions& options = {});

/// A file of such texts, made while a model learned: "step 100" and the text, indented by four spaces.
/// It is replaced as a whole for every text, so a killed run leaves it complete.
///
///   attentive::TextSamples samples("run/samples.txt", /*from_step=*/0);
///   samples.add(100, attentive::sample_text(language));
class TextSamples {
 public:
  /// Keeps the texts up to `from_step`: later ones belong to steps that a resumed run repeats. The file is
  /// written by the first `add`. Throws c10::ValueError if it cannot be read.
  TextSamples(std::filesystem::path path, int64_t from_step);

  /// Throws c10::ValueError if the file cannot be written.
  void add(int64_t step, const std::string& text);

 private:
  std::filesystem::path path_;
  std::string content_;
};

}  // namespace attentive
