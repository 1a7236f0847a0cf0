#pragma once

/// Includes every public header of `attentive::tokenizers`. A program that is rebuilt often compiles faster
/// if it includes only what it uses.

#include <attentive/tokenizers/pretrained_tokenizer.h>
