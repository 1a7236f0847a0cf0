#pragma once

/// Includes every public header of `attentive::models`. A program that is rebuilt often compiles faster if it
/// includes only what it uses.

#include <attentive/models/any_language_model.h>
#include <attentive/models/bert.h>
#include <attentive/models/generate.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/lora.h>
#include <attentive/models/model_folder.h>
#include <attentive/models/vit.h>
