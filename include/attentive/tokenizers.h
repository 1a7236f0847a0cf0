#pragma once

/// Everything of `attentive::tokenizers` in one include. Programs that build often include what they use.

#include <attentive/tokenizers/pretrained_tokenizer.h>
#include <attentive/tokenizers/text_span.h>
