#pragma once

#include <optional>
#include <string>

#include <attentive/train/checkpoint.h>
#include <attentive/train/language_model.h>
#include <attentive/train/trainer.h>
#include <attentive/train/training_group.h>

#include "settings.h"

// What a run begins with.
struct Start {
  attentive::LanguageModel language;
  attentive::TrainerOptions trainer;
  std::optional<attentive::Checkpoint> checkpoint = std::nullopt;  // of a run that goes on
};

// Where the fine-tuned model of a run lies, for Python.
std::filesystem::path python_folder(const Settings& settings);

// The settings of a start that torchrun has made after a failure: as with --resume if rank 0 sees a checkpoint
// in --out, and without what only a new run takes. One call of the group; null: this process is alone.
Settings after_failure(Settings settings, attentive::TrainingGroup* group);

// Throws c10::ValueError in every process if some have --resume and others do not. One call of the group.
void check_same_start(const Settings& settings, attentive::TrainingGroup& group);

// A new model for the text, the one of --init-from, or that of the latest checkpoint. Throws c10::ValueError
// if --out holds what the run must not overwrite, and for settings that contradict each other or the model.
// writes: whether this process writes to --out; rank 0 of a group may have begun to when the others come
// here.
Start start_of(const Settings& settings, const std::string& text, bool writes);
