// Converts this package's tokenizers to Hugging Face's tokenizer.json.

#include <map>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/tokenizer.h>

#include "base/strings.h"
#include "text/byte_pairs.h"

namespace attentive {
namespace {

using nlohmann::json;

json document(json pre_tokenizer, json decoder, json model) {
  return {{"version", "1.0"},          {"truncation", nullptr},
          {"padding", nullptr},        {"added_tokens", json::array()},
          {"normalizer", nullptr},     {"pre_tokenizer", std::move(pre_tokenizer)},
          {"post_processor", nullptr}, {"decoder", std::move(decoder)},
          {"model", std::move(model)}};
}

json split(const std::string& regex) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
}

json byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
}

std::string visible(std::string_view bytes) {
  std::string text;
  to_visible(bytes, text);
  return text;
}

// The regular expression by which BpeTokenizer splits a text. It is applied after bytes have become visible
// characters, so that lengths count bytes here as well. At most one space precedes a run of letters, digits
// or signs; a run of white space leaves its last space to the following word, even if the run is longer than
// a piece.
std::string piece_regex() {
  constexpr auto longest = BpeTokenizer::kLongestPiece;
  constexpr const char* space = "\u0120";
  constexpr const char* white = "\u0109-\u010d\u0120";
  std::string regex;
  for (const auto* kind : {"A-Za-z\u00a1-\u00ac\u00ae-\u00ff\u0122-\u0143", "0-9",
                           "!-/:-@\\[-`{-~\u0100-\u0108\u010e-\u011f\u0121"}) {
    regex += fmt::format("{}[{}]{{1,{}}}|[{}]{{1,{}}}|", space, kind, longest - 1, kind, longest);
  }
  return regex + fmt::format("[{0}]{{{2}}}(?={1}.)|[{0}]{{1,{3}}}(?={1}[^{0}])|[{0}]{{1,{4}}}", white, space,
                             longest - 1, longest - 2, longest);
}

}  // namespace

std::string BpeTokenizer::to_python_json() const {
  std::map<std::string, int64_t> vocabulary;
  for (int64_t id = 0; id < vocab_size(); ++id) {
    const auto [entry, fresh] = vocabulary.emplace(visible(bytes(id)), id);
    TORCH_CHECK_VALUE(fresh, "BpeTokenizer: tokens ", entry->second, " and ", id,
                      " stand for the same bytes, which Python's vocabulary cannot express");
  }
  json merges = json::array();
  for (const auto& [left, right] : merges_) merges.push_back({visible(bytes(left)), visible(bytes(right))});
  const json model{{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", false},
                   {"vocab", vocabulary},
                   {"merges", merges}};
  const json cuts{{"type", "Sequence"}, {"pretokenizers", {byte_level(), split(piece_regex())}}};
  return document(cuts, byte_level(), model).dump();
}

std::string CharTokenizer::to_python_json() const {
  json vocabulary = json::object();
  for (const auto& [piece, id] : ids_) {
    TORCH_CHECK_VALUE(is_utf8(piece), "CharTokenizer: token ", id, ", the byte 0x", to_hex(piece),
                      ", belongs to no character, which Python's texts consist of");
    vocabulary[piece] = id;
  }
  // A character that is not in the vocabulary is an error here, and also in Python if this token is not in
  // the vocabulary.
  const json model{{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "<unk>"}};
  return document(split(".|\\n"), json::object({{"type", "Fuse"}}), model).dump();
}

std::string Tokenizer::to_python_json() const {
  C10_THROW_ERROR(ValueError, "Tokenizer: this tokenizer has no form that Python reads");
}

}  // namespace attentive
