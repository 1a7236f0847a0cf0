#pragma once

#include <string>

#include <attentive/train/progress.h>
#include <attentive/train/text_samples.h>

struct Settings;
struct Start;

// Texts that a model writes while it learns, into samples.txt and on the screen. They change no bit of the run.
class Samples {
 public:
  // Throws c10::ValueError for a prompt that the model cannot use, before any step. `start` outlives this.
  Samples(const Settings& settings, const Start& start, const std::string& text, int64_t from_step);

  void after(int64_t step, attentive::Progress& progress);

 private:
  int64_t every_;
  const attentive::LanguageModel& language_;
  attentive::TextSampleOptions options_;
  attentive::TextSamples file_;
};
