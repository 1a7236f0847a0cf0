#pragma once

#include <string_view>

#include <attentive/train/language_model.h>
#include <attentive/train/training_log.h>

struct Settings;
struct Start;

// Writes texts that the model generates during training to samples.txt and to the screen. Sampling does not
// affect the run.
class Samples {
 public:
  // Throws c10::ValueError, before any step, for a prompt that the model cannot use. `start` must outlive
  // this object.
  Samples(const Settings& settings, const Start& start, std::string_view text, int64_t from_step);

  void after(int64_t step, attentive::Progress& progress);

 private:
  int64_t every_;
  const attentive::LanguageModel& language_;
  attentive::TextSampleOptions options_;
  attentive::TextSamples file_;
};
