#pragma once

#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "support/files.h"
#include "tokenizers/pieces.h"

namespace attentive::test {

// The tokenizers that Python recorded.
inline const std::vector<std::string> kKinds = {
    "gpt2",       "llama3", "qwen",    "roberta", "bert_uncased", "bert_cased", "bert_limited", "words",
    "word_level", "llama2", "mistral", "gemma",   "t5",           "albert",     "xlm_roberta"};

inline std::string tokenizer_data(const std::string& name) {
  return source_folder() + "/tests/tokenizers/data/" + name;
}

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  return nlohmann::json::parse(file);
}

// A document with one of each part, small enough to read.
inline nlohmann::json small_document() {
  return nlohmann::json::parse(R"({
    "version": "1.0",
    "truncation": {"direction": "Right", "max_length": 20, "strategy": "LongestFirst", "stride": 0},
    "padding": {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                "pad_type_id": 0, "pad_token": "x"},
    "added_tokens": [{"id": 6, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true},
                     {"id": 7, "content": "Tag", "single_word": true, "lstrip": true, "rstrip": true,
                      "normalized": true, "special": false}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"},
      {"type": "Strip", "strip_left": true, "strip_right": false},
      {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
       "lowercase": true}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "MergedWithNext", "invert": false},
      {"type": "Digits", "individual_digits": true}, {"type": "Punctuation", "behavior": "Isolated"},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
    "post_processor": {"type": "Sequence", "processors": [
      {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
       "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
       "special_tokens": {"<s>": {"id": "<s>", "ids": [6], "tokens": ["<s>"]}}}]},
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel", "add_prefix_space": true,
      "trim_offsets": true, "use_regex": true}, {"type": "Fuse"}]},
    "model": {"type": "BPE", "dropout": null, "unk_token": "u", "continuing_subword_prefix": null,
      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
      "vocab": {"u": 0, "a": 1, "b": 2, "ab": 3, "Ġ": 4, "aba": 5}, "merges": [["a", "b"], ["ab", "a"]]}
  })");
}

inline nlohmann::json small_word_piece() {
  auto document = small_document();
  document["model"] = {{"type", "WordPiece"},
                       {"unk_token", "u"},
                       {"continuing_subword_prefix", "##"},
                       {"max_input_chars_per_word", 10},
                       {"vocab", {{"u", 0}, {"a", 1}, {"##b", 2}, {"##a", 3}, {"ab", 4}, {"##é", 5}}}};
  return document;
}

}  // namespace attentive::test

// How a failing test shows encodings and where they come from. Found by the namespaces of what is shown.

namespace attentive {

inline std::ostream& operator<<(std::ostream& stream, const TextSpan& span) {
  return stream << '[' << span.begin << ", " << span.end << ')';
}

inline std::ostream& operator<<(std::ostream& stream, const Encoding& encoding) {
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    stream << encoding.ids[i];
    if (i < encoding.offsets.size()) stream << encoding.offsets[i];
    stream << ' ';
  }
  return stream;
}

namespace tokenizers {

inline std::ostream& operator<<(std::ostream& stream, const Origin& origin) {
  return stream << '[' << origin.begin << ", " << origin.end << ')';
}

}  // namespace tokenizers
}  // namespace attentive
