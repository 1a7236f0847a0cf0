#pragma once

/// Everything of `attentive::models` in one include. Programs that build often include what they use.

#include <attentive/models/any_language_model.h>
#include <attentive/models/bert.h>
#include <attentive/models/generate.h>
#include <attentive/models/gpt.h>
#include <attentive/models/gpt2_names.h>
#include <attentive/models/llama.h>
#include <attentive/models/logits.h>
#include <attentive/models/model_folder.h>
#include <attentive/models/pretrained.h>
#include <attentive/models/python_names.h>
#include <attentive/models/save_model_folder.h>
#include <attentive/models/vit.h>
