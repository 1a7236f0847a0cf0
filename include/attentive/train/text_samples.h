#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <attentive/models/generate.h>
#include <attentive/train/language_model.h>

namespace attentive {

struct TextSampleOptions {
  std::string prompt = "\n";
  int64_t tokens = 100;  ///< number of new tokens; fewer if a stop token is generated
  SamplingOptions sampling = {.temperature = 0.8};
  uint64_t seed = 0;
};

/// Continues a prompt with a language model: returns the prompt followed by the decoded new tokens, without
/// special ones. An incomplete character becomes U+FFFD, as in Python's `decode`. When the context is full,
/// its older half is dropped. The model's mode and the default generators are left unchanged, so that
/// sampling does not affect a training run.
/// Throws c10::ValueError without a tokenizer, for a prompt that is empty or that the tokenizer cannot spell,
/// and for invalid options.
///
///   auto text = attentive::sample_text(language, {.prompt = "ROMEO:", .tokens = 60});
std::string sample_text(const LanguageModel& language, const TextSampleOptions& options = {});

/// A file of texts sampled while a model was trained: "step 100", then the text, indented by four spaces. It
/// is replaced as a whole for each text, so it is complete even if the run is killed.
///
///   attentive::TextSamples samples("run/samples.txt", /*from_step=*/0);
///   samples.add(100, attentive::sample_text(language));
class TextSamples {
 public:
  /// Keeps the texts up to `from_step`: later ones belong to steps that a resumed run repeats. The first
  /// `add` writes the file. Throws c10::ValueError if it cannot be read.
  TextSamples(std::filesystem::path path, int64_t from_step);

  /// Throws c10::ValueError if the file cannot be written.
  void add(int64_t step, const std::string& text);

 private:
  std::filesystem::path path_;
  std::string content_;
};

}  // namespace attentive
