#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <attentive/train/checkpoint.h>
#include <attentive/train/language_model.h>
#include <attentive/train/trainer.h>
#include <attentive/train/training_group.h>

#include "settings.h"

// The model and the state with which a run begins.
struct Start {
  attentive::LanguageModel language;
  attentive::TrainerOptions trainer;
  std::optional<attentive::Checkpoint> checkpoint = std::nullopt;  // set if a run is resumed
};

// The folder of a run's fine-tuned model, for Python.
std::filesystem::path python_folder(const Settings& settings);

// The folder of a run's adapters, for Python's peft.
std::filesystem::path adapter_folder(const Settings& settings);

// Adjusts the settings if torchrun has restarted the job after a failure: resumes if rank 0 sees a checkpoint
// in --out, and ignores the settings that only a new run accepts. One call of the group; null: a single
// process.
Settings after_failure(Settings settings, attentive::TrainingGroup* group);

// Throws c10::ValueError in every process if some have --resume or --tokens and others do not. One call of
// the group.
void check_same_start(const Settings& settings, attentive::TrainingGroup& group);

// Makes a new model for the text, or loads the one of --init-from or of the latest checkpoint. Throws
// c10::ValueError if --out holds files that the run must not overwrite, and for settings that contradict each
// other or the model. writes: whether this process writes to --out; rank 0 of a group may already have begun
// to write when another rank calls this.
Start start_of(const Settings& settings, std::string_view text, bool writes);
