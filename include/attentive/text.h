#pragma once

/// Includes every public header of `attentive::text`. A program that is rebuilt often compiles faster if it
/// includes only what it uses.

#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/tokenizer.h>
