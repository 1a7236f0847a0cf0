#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attentive::tokenizers {

/// What a token of a SentencePiece model is, by the numbers that its files have for it.
enum class PieceKind : uint8_t {
  Normal = 1,
  Unknown = 2,
  Control = 3,  // such as <s>: no text is spelled with it
  UserDefined = 4,
  Unused = 5,
  Byte = 6,  // <0x0A>
};

struct SentencePiece {
  std::string text;
  float score = 0;
  PieceKind kind = PieceKind::Normal;
};

/// The parts of a SentencePiece model (`tokenizer.model`, `spiece.model`) that say how it spells text. What a
/// file does not state has the value that the format gives it.
struct SentencePieceModel {
  std::vector<SentencePiece> pieces;  // by their ids
  bool is_unigram = true;             // otherwise byte-pair encoding, whole words or characters
  bool byte_fallback = false;
  int32_t unknown_id = 0, begin_id = 1, end_id = 2;  // negative: there is none
  std::string unknown = "<unk>", begin = "<s>", end = "</s>";
  std::string charsmap;  // bytes: how characters are normalized before; empty if they are not
};

/// Reads a model out of the bytes of its file, which is a message of protocol buffers (proto2). Fields that do not
/// matter here are passed over. Throws Refusal with the offset if a length or a number reaches beyond its end,
/// for text that is not UTF-8, and for more than 4,194,304 tokens or a token of more than 512 bytes.
/// Memory: O(bytes).
/// Source: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
SentencePieceModel parse_sentence_piece_model(std::string_view bytes);

}  // namespace attentive::tokenizers
