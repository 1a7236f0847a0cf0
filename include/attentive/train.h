#pragma once

/// Includes every public header of `attentive::train`. A program that is rebuilt often compiles faster if it
/// includes only what it uses.

#include <attentive/train/adamw.h>
#include <attentive/train/checkpoint.h>
#include <attentive/train/evaluate.h>
#include <attentive/train/language_model.h>
#include <attentive/train/loss_scaler.h>
#include <attentive/train/token_file.h>
#include <attentive/train/trainer.h>
#include <attentive/train/training_group.h>
#include <attentive/train/training_log.h>
