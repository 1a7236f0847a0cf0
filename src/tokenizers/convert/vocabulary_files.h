#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace attentive::tokenizers {

// These functions read the vocabulary files of models other than SentencePiece ones, with the results of
// Python's `tokenizers`, and return them as a `tokenizer.json` writes them.

/// Reads `vocab.txt`: one token per line, whose id is the line's number. White space at the end of a line is
/// ignored, and of two equal lines the last one counts. Returns an object of tokens and ids. Throws Refusal
/// for bad UTF-8, and for more than 4,194,304 lines.
nlohmann::json parse_vocab_txt(std::string_view text);

/// Reads `vocab.json`: an object of tokens and ids. Throws Refusal, also for two tokens with the same id.
nlohmann::json parse_vocab_json(std::string_view text);

/// Reads `merges.txt`: two tokens per line with a space between them, sorted by rank. Lines that begin with
/// "#version" are ignored. Returns an array of pairs. Throws Refusal with the number of the line, also for
/// tokens that are not in the vocabulary.
nlohmann::json parse_merges_txt(std::string_view text, const nlohmann::json& vocabulary);

/// The kinds of tokens of a SentencePiece model, with the numbers that its files use.
enum class PieceKind : uint8_t {
  Normal = 1,
  Unknown = 2,
  Control = 3,  // such as <s>; never used to spell text
  UserDefined = 4,
  Unused = 5,
  Byte = 6,  // such as <0x0A>
};

struct SentencePiece {
  std::string text;
  float score = 0;
  PieceKind kind = PieceKind::Normal;
};

/// The parts of a SentencePiece model (`tokenizer.model`, `spiece.model`) that determine how it spells text.
/// Members that a file does not state have the format's default values.
struct SentencePieceModel {
  std::vector<SentencePiece> pieces;  // indexed by id
  bool is_unigram = true;             // if false: byte-pair encoding, whole words or characters
  bool byte_fallback = false;
  int32_t unknown_id = 0, begin_id = 1, end_id = 2;  // negative if there is no such token
  std::string unknown = "<unk>", begin = "<s>", end = "</s>";
  std::string charsmap;  // the bytes of the normalization; empty if there is none
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

/// Reads a model from the bytes of its file, which is a message of protocol buffers (proto2). Unused fields
/// are skipped. Throws Refusal with the offset if a length or a number reaches beyond the end of the file,
/// for text that is not UTF-8, and for more than 4,194,304 tokens or a token of more than 512 bytes.
/// Memory: O(bytes).
/// Source: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
SentencePieceModel parse_sentence_piece_model(std::string_view bytes);

}  // namespace attentive::tokenizers
