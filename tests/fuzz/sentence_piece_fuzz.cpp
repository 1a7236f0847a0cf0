// Any bytes at all: parse_sentence_piece_model returns a model or throws Refusal, and the documents that are
// made of a model are documents.
//
//   build/fuzz/tests/sentence_piece_fuzz -max_total_time=600 -max_len=65536 new
//   build/fuzz/tests/corpora/sentence_piece_fuzz

#include <cstdio>
#include <cstdlib>

#include "base/refusal.h"
#include "tokenizers/convert/documents.h"
#include "tokenizers/convert/vocabulary_files.h"

namespace {

using namespace attentive::tokenizers;

[[noreturn]] void report(const char* what) {
  std::fputs(what, stderr);
  std::abort();
}

// A document is costly; only some inputs pay for it.
bool converts_this_one(const uint8_t* data, size_t size) {
  unsigned sum = 0;
  for (size_t i = 0; i < size; ++i) sum = sum * 31 + data[i];
  return sum % 16 == 0;
}

void convert(const SentencePieceModel& model, TokenizerClass kind) {
  try {
    const auto document = sentence_piece_document(kind, model, TokenizerSettings());
    if (!nlohmann::json::accept(document.dump())) report("a document that is no JSON\n");
  } catch (const attentive::Refusal&) {
    // a class that this model does not suit
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  SentencePieceModel model;
  try {
    model = parse_sentence_piece_model({reinterpret_cast<const char*>(data), size});
  } catch (const attentive::Refusal&) {
    return 0;
  }
  size_t bytes = model.charsmap.size();
  for (const auto& piece : model.pieces) bytes += piece.text.size();
  if (model.pieces.empty() || bytes > size) report("a model that is not in its file\n");
  if (!converts_this_one(data, size)) return 0;
  for (const auto kind :
       {TokenizerClass::Llama, TokenizerClass::Gemma, TokenizerClass::Backend, TokenizerClass::T5,
        TokenizerClass::Albert, TokenizerClass::XlmRoberta, TokenizerClass::Camembert}) {
    convert(model, kind);
  }
  return 0;
}
