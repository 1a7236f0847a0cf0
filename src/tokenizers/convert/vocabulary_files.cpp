#include "tokenizers/convert/vocabulary_files.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_set>

#include "base/refusal.h"
#include "base/strings.h"
#include "tokenizers/json_view.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

constexpr size_t kMostLines = size_t{1} << 22;

// Calls visit(line, number) for every line, without its line end; the last line may have none.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  const auto good = utf8_prefix(text);
  if (good != text.size()) refuse("expected UTF-8, got a bad byte at offset {}", good);
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    auto line = text.substr(begin, end - begin);
    if (end < text.size() && line.ends_with('\r')) line.remove_suffix(1);
    if (++number > kMostLines) refuse("expected at most {} lines", kMostLines);
    visit(line, number);
    begin = end + 1;
  }
}

std::string_view without_end_space(std::string_view line) {
  while (!line.empty() && is_space(previous_char(line, line.size()))) {
    line = line.substr(0, previous_start(line, line.size()));
  }
  return line;
}

}  // namespace

nlohmann::json parse_vocab_txt(std::string_view text) {
  auto vocabulary = nlohmann::json::object();
  for_each_line(text, [&](std::string_view line, size_t number) {
    vocabulary[std::string(without_end_space(line))] = number - 1;
  });
  if (vocabulary.empty()) refuse("expected a token a line, got no line");
  return vocabulary;
}

nlohmann::json parse_vocab_json(std::string_view text) {
  auto vocabulary = parse_json(text);
  const JsonView view(vocabulary);
  if (!vocabulary.is_object() || vocabulary.empty()) view.expected("an object of tokens and ids");
  if (vocabulary.size() > kMostLines) refuse("expected at most {} tokens", kMostLines);
  std::unordered_set<int64_t> ids;
  for (const auto& [token, id] : vocabulary.items()) {
    if (!ids.insert(view.at(token).integer()).second)
      view.at(token).expected("an id that no other token has");
  }
  return vocabulary;
}

nlohmann::json parse_merges_txt(std::string_view text, const nlohmann::json& vocabulary) {
  auto merges = nlohmann::json::array();
  for_each_line(text, [&](std::string_view line, size_t number) {
    if (line.starts_with("#version")) return;
    const auto space = line.find(' ');
    if (space == line.npos || line.find(' ', space + 1) != line.npos) {
      refuse("line {}: expected two tokens with a space between them, got {}", number, quoted_name(line));
    }
    const std::string left(line.substr(0, space)), right(line.substr(space + 1));
    for (const auto& token : {left, right, left + right}) {
      if (!vocabulary.contains(token)) {
        refuse("line {}: expected tokens of the vocabulary, which lacks {}", number, quoted_name(token));
      }
    }
    merges.push_back({left, right});
  });
  return merges;
}

namespace {

constexpr size_t kMostPieces = size_t{1} << 22;
constexpr size_t kLongestPieceText = 512;  // in bytes; the merges of a token cost the square of its length

// The encodings of a field's value.
enum class Wire : uint8_t { Number = 0, EightBytes = 1, Text = 2, FourBytes = 5 };

// A field of a message and its value: a number, or the bytes of a text or of a nested message.
struct WireField {
  uint64_t number = 0;
  Wire wire = Wire::Number;
  uint64_t value = 0;
  std::string_view bytes;
  size_t offset = 0;  // the offset of the field in the file
};

// Reads the fields of a message one after the other.
class WireReader {
 public:
  WireReader(std::string_view message, size_t offset) : message_(message), offset_(offset) {}

  bool next(WireField& field) {
    if (at_ == message_.size()) return false;
    field = WireField();
    field.offset = offset_ + at_;
    const auto tag = number();
    const auto wire = tag & 7;
    field.number = tag >> 3;
    if (field.number == 0) fail("a field's number");
    if (wire == 0) {
      field.value = number();
    } else if (wire == 1) {
      field.value = little_endian(8);
    } else if (wire == 2) {
      const auto size = number();
      if (size > message_.size() - at_) fail("a length within its message");
      field.bytes = message_.substr(at_, size);
      at_ += size;
    } else if (wire == 5) {
      field.value = little_endian(4);
    } else {
      fail("a number, a text or a message");
    }
    field.wire = static_cast<Wire>(wire);
    return true;
  }

  // Returns the offset in the file of the bytes of the text or message that was read last.
  size_t offset_of(const WireField& field) const { return offset_ + at_ - field.bytes.size(); }

 private:
  uint64_t number() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == message_.size()) fail("the rest of a number");
      const auto byte = static_cast<uint8_t>(message_[at_++]);
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
    fail("a number of at most ten bytes");
  }

  uint64_t little_endian(size_t bytes) {
    if (bytes > message_.size() - at_) fail("the rest of a number");
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) {
      value |= static_cast<uint64_t>(static_cast<uint8_t>(message_[at_ + i])) << (8 * i);
    }
    at_ += bytes;
    return value;
  }

  [[noreturn]] void fail(std::string_view what) const {
    refuse("expected {} of a SentencePiece model at offset {}, got other bytes", what, offset_ + at_);
  }

  std::string_view message_;
  size_t offset_;
  size_t at_ = 0;
};

void demand_wire(const WireField& field, Wire wire, std::string_view name) {
  if (field.wire != wire) {
    refuse("{}: expected another type of value for a SentencePiece model at offset {}", name, field.offset);
  }
}

std::string wire_text(const WireField& field, std::string_view name) {
  demand_wire(field, Wire::Text, name);
  if (!is_utf8(field.bytes)) refuse("{}: expected UTF-8 at offset {}", name, field.offset);
  return std::string(field.bytes);
}

int32_t wire_integer(const WireField& field, std::string_view name) {
  demand_wire(field, Wire::Number, name);
  return static_cast<int32_t>(static_cast<uint32_t>(field.value));
}

SentencePiece parse_sentence_piece(std::string_view message, size_t offset) {
  SentencePiece piece;
  WireReader reader(message, offset);
  for (WireField field; reader.next(field);) {
    if (field.number == 1) {
      piece.text = wire_text(field, "pieces.piece");
      if (piece.text.size() > kLongestPieceText) {
        refuse("pieces.piece: expected at most {} bytes, got {} at offset {}", kLongestPieceText,
               piece.text.size(), field.offset);
      }
    } else if (field.number == 2) {
      demand_wire(field, Wire::FourBytes, "pieces.score");
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
      if (!std::isfinite(piece.score)) {
        refuse("pieces.score: expected a finite number at offset {}", field.offset);
      }
    } else if (field.number == 3) {
      demand_wire(field, Wire::Number, "pieces.type");
      if (field.value < 1 || field.value > 6) {
        refuse("pieces.type: expected 1 to 6, got {} at offset {}", field.value, field.offset);
      }
      piece.kind = static_cast<PieceKind>(field.value);
    }
  }
  return piece;
}

bool wire_flag(const WireField& field, std::string_view name) {
  demand_wire(field, Wire::Number, name);
  return field.value != 0;
}

void parse_trainer_spec(std::string_view message, size_t offset, SentencePieceModel& model) {
  WireReader reader(message, offset);
  for (WireField field; reader.next(field);) {
    if (field.number == 3) {
      const auto type = wire_integer(field, "trainer_spec.model_type");
      if (type < 1 || type > 4) refuse("trainer_spec.model_type: expected 1 to 4, got {}", type);
      model.is_unigram = type == 1;
    } else if (field.number == 35) {
      model.byte_fallback = wire_flag(field, "trainer_spec.byte_fallback");
    } else if (field.number == 40) {
      model.unknown_id = wire_integer(field, "trainer_spec.unk_id");
    } else if (field.number == 41) {
      model.begin_id = wire_integer(field, "trainer_spec.bos_id");
    } else if (field.number == 42) {
      model.end_id = wire_integer(field, "trainer_spec.eos_id");
    } else if (field.number == 45) {
      model.unknown = wire_text(field, "trainer_spec.unk_piece");
    } else if (field.number == 46) {
      model.begin = wire_text(field, "trainer_spec.bos_piece");
    } else if (field.number == 47) {
      model.end = wire_text(field, "trainer_spec.eos_piece");
    }
  }
}

void parse_normalizer_spec(std::string_view message, size_t offset, SentencePieceModel& model) {
  WireReader reader(message, offset);
  for (WireField field; reader.next(field);) {
    if (field.number == 2) {
      demand_wire(field, Wire::Text, "normalizer_spec.precompiled_charsmap");
      model.charsmap = field.bytes;
    } else if (field.number == 3) {
      model.add_dummy_prefix = wire_flag(field, "normalizer_spec.add_dummy_prefix");
    } else if (field.number == 4) {
      model.remove_extra_whitespaces = wire_flag(field, "normalizer_spec.remove_extra_whitespaces");
    } else if (field.number == 5) {
      model.escape_whitespaces = wire_flag(field, "normalizer_spec.escape_whitespaces");
    }
  }
}

}  // namespace

SentencePieceModel parse_sentence_piece_model(std::string_view bytes) {
  SentencePieceModel model;
  WireReader reader(bytes, 0);
  for (WireField field; reader.next(field);) {
    if (field.number > 3) continue;
    demand_wire(field, Wire::Text, "the model");
    const auto offset = reader.offset_of(field);
    if (field.number == 1) {
      if (model.pieces.size() == kMostPieces) refuse("pieces: expected at most {} tokens", kMostPieces);
      model.pieces.push_back(parse_sentence_piece(field.bytes, offset));
    } else if (field.number == 2) {
      parse_trainer_spec(field.bytes, offset, model);
    } else {
      parse_normalizer_spec(field.bytes, offset, model);
    }
  }
  if (model.pieces.empty()) refuse("pieces: expected the tokens of a SentencePiece model, got none");
  return model;
}

}  // namespace attentive::tokenizers
