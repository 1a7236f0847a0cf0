#pragma once

/// Everything of `attentive::text` in one include. Programs that build often include what they use.

#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/char_tokenizer.h>
#include <attentive/text/streaming_decoder.h>
#include <attentive/text/tokenizer.h>
