#pragma once

#include <string>

#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

/// The classes of Python's transformers that read a folder's own files here.
enum class TokenizerClass {
  Bert,        // vocab.txt
  Gpt2,        // vocab.json and merges.txt
  Roberta,     // the same
  Qwen2,       // the same
  Llama,       // tokenizer.model
  Gemma,       // the same
  Backend,     // the same, for models that have no class of their own, such as Mistral
  T5,          // spiece.model
  Albert,      // the same
  XlmRoberta,  // sentencepiece.bpe.model
  Camembert,   // the same
};

struct ChosenClass {
  TokenizerClass kind;
  std::string why;  // such as: "tokenizer_class" of tokenizer_config.json
};

/// Which class reads a folder, as AutoTokenizer of transformers 5.23.0 decides: `tokenizer_class` of
/// tokenizer_config.json, else that of config.json, unless the `model_type` of config.json demands another
/// one; else the class of the `model_type`. Both documents may be empty objects. Throws Refusal for a class
/// that is none of these, for Python code of the folder's own, and for a model type without a known class.
ChosenClass choose_tokenizer_class(const JsonView& tokenizer_config, const JsonView& config);

/// The class's name in Python.
const char* name_of(TokenizerClass kind);

/// The file with its vocabulary.
const char* vocabulary_file_of(TokenizerClass kind);

}  // namespace attentive::tokenizers
