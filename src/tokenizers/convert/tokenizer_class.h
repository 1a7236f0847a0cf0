#pragma once

#include <string>

#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

/// The classes of Python's transformers whose vocabulary files are read here.
enum class TokenizerClass {
  Bert,        // vocab.txt
  Gpt2,        // vocab.json and merges.txt
  Roberta,     // the same
  Qwen2,       // the same
  Llama,       // tokenizer.model
  Gemma,       // the same
  Backend,     // tokenizer.model, for models without a class of their own, such as Mistral
  T5,          // spiece.model
  Albert,      // the same
  XlmRoberta,  // sentencepiece.bpe.model
  Camembert,   // the same
};

struct ChosenClass {
  TokenizerClass kind;
  std::string why;  // the reason, such as "tokenizer_class of tokenizer_config.json"
};

/// Returns the class that reads a folder, as AutoTokenizer of transformers 5.23.0 decides: `tokenizer_class`
/// of tokenizer_config.json, else that of config.json, unless the `model_type` of config.json demands another
/// class; else the class of the `model_type`. Both documents may be empty objects. Throws Refusal for a class
/// that is not listed here, for a folder with Python code, and for a model type without a known class.
ChosenClass choose_tokenizer_class(const JsonView& tokenizer_config, const JsonView& config);

/// Returns the class's name in Python.
const char* name_of(TokenizerClass kind);

/// Returns the name of the class's vocabulary file.
const char* vocabulary_file_of(TokenizerClass kind);

}  // namespace attentive::tokenizers
