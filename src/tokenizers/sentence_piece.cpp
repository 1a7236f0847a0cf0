#include "base/refusal.h"
#include "tokenizers/pipeline.h"

namespace attentive::tokenizers {
namespace {

// Whether a part, or a part of its sequence, has one of these types. Documents are at most 64 deep.
bool has_type(const nlohmann::json& part, std::string_view type) {
  if (part.is_array()) {
    for (const auto& item : part) {
      if (has_type(item, type)) return true;
    }
  }
  if (!part.is_object()) return false;
  const auto stated = part.find("type");
  if (stated != part.end() && *stated == type) return true;
  for (const char* list : {"normalizers", "pretokenizers", "decoders"}) {
    if (part.contains(list) && has_type(part[list], type)) return true;
  }
  return false;
}

}  // namespace

void refuse_sentence_piece(const JsonView& document) {
  const auto model = document.at("model");
  const auto part = [&](const char* key) {
    return document.has(key) ? document.at(key).raw() : nlohmann::json();
  };
  const bool unigram = (model.has("type") && model.at("type").raw() == "Unigram") ||
                       (model.has("vocab") && model.at("vocab").raw().is_array());
  const bool fallback = model.has("byte_fallback") && model.at("byte_fallback").raw() == true;
  const bool metaspace = has_type(part("pre_tokenizer"), "Metaspace") ||
                         has_type(part("decoder"), "Metaspace") || has_type(part("normalizer"), "Prepend") ||
                         has_type(part("normalizer"), "Precompiled");
  if (!unigram && !fallback && !metaspace) return;
  refuse(
      "model: a SentencePiece model ({}) is not supported; encode the text in Python, and pass its ids "
      "instead",
      unigram ? "Unigram" : "BPE with bytes as a fallback or U+2581 as its space");
}

}  // namespace attentive::tokenizers
