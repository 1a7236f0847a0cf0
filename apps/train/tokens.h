#pragma once

#include <attentive/text/tokenizer.h>
#include <attentive/train/language_model.h>
#include <attentive/train/training_group.h>

#include "settings.h"
#include "text.h"

// The tokens of a run's text: in memory, in the file of --tokens, or, for a long text in processes on one
// machine, in tokens.bin of --out. Rank 0 writes a file that is not there yet, and all processes map it.
// Collective, if there is a group.
//
// Throws c10::ValueError if the sizes of the texts differ between processes, and the errors of
// attentive::write_token_file and attentive::map_token_file. A file of --tokens that holds the tokens of
// another text or tokenizer is refused; tokens.bin is then written again.
attentive::TokenizedText tokens_of(const Settings& settings, const Text& text,
                                   const attentive::Tokenizer& tokenizer, attentive::TrainingGroup* group);
