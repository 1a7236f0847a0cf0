#include "tokenizers/decoder.h"

#include <algorithm>
#include <span>
#include <utility>

#include "tokenizers/decoders.h"
#include "tokenizers/token_decoder.h"

namespace attentive::tokenizers {
namespace {

using Tokens = std::vector<std::string>;

class UnchangedStream final : public DecoderStream {
 public:
  void push(std::string token, Tokens& out) override { out.push_back(std::move(token)); }
};

// Collects the whole text for decoders that follow one that joins all tokens and whose result depends on the
// end of the text.
class WholeTextStream final : public DecoderStream {
 public:
  explicit WholeTextStream(std::span<const Decoder> decoders) : decoders_(decoders.begin(), decoders.end()) {}
  void push(std::string token, Tokens&) override { text_ += token; }
  void finish(Tokens& out) override {
    Tokens tokens{std::move(text_)};
    for (const auto& one : decoders_) one.apply(tokens);
    out.insert(out.end(), tokens.begin(), tokens.end());
  }

 private:
  std::vector<Decoder> decoders_;
  std::string text_;
};

// Passes tokens through several streams, one after the other.
class StagesStream final : public DecoderStream {
 public:
  void add(std::unique_ptr<DecoderStream> stage) { stages_.push_back(std::move(stage)); }

  void push(std::string token, Tokens& out) override {
    Tokens tokens{std::move(token)};
    for (const auto& stage : stages_) tokens = pushed(*stage, std::move(tokens));
    out.insert(out.end(), tokens.begin(), tokens.end());
  }
  void finish(Tokens& out) override {
    Tokens tokens;
    for (const auto& stage : stages_) {
      tokens = pushed(*stage, std::move(tokens));
      stage->finish(tokens);
    }
    out.insert(out.end(), tokens.begin(), tokens.end());
  }

 private:
  static Tokens pushed(DecoderStream& stage, Tokens tokens) {
    Tokens out;
    for (auto& token : tokens) stage.push(std::move(token), out);
    return out;
  }

  std::vector<std::unique_ptr<DecoderStream>> stages_;
};

// Whether the stage before these decoders must write each token in one piece.
bool need_whole_tokens(std::span<const Decoder> decoders, bool whole) {
  for (const auto& one : decoders) {
    if (!one.only_joins) return true;
    if (one.joins) return false;  // Fuse
  }
  return whole;
}

// Adds the streams of decoders that get a single token in parts.
void add_stages_of_one(std::span<const Decoder> decoders, StagesStream& stages) {
  for (; !decoders.empty(); decoders = decoders.subspan(1)) {
    if (!decoders[0].stream_of_one) return stages.add(std::make_unique<WholeTextStream>(decoders));
    stages.add(decoders[0].stream_of_one());
  }
}

std::unique_ptr<DecoderStream> sequence_stream(std::span<const Decoder> decoders, bool whole) {
  auto stages = std::make_unique<StagesStream>();
  while (!decoders.empty()) {
    const auto& one = decoders[0];
    decoders = decoders.subspan(1);
    stages->add(one.stream(need_whole_tokens(decoders, whole)));
    if (!one.joins) continue;
    add_stages_of_one(decoders, *stages);
    break;
  }
  return stages;
}

Decoder parse_decoder_sequence(const JsonView& json) {
  json.only({"type", "decoders"});
  std::vector<Decoder> all;
  double growth = 1;
  for (const auto& item : json.at("decoders").items()) {
    if (item.is_null()) item.expected("a decoder");
    all.push_back(parse_decoder(item));
    growth *= all.back().growth;
  }
  const auto any = [&](bool Decoder::*mark) {
    return std::ranges::any_of(all, [=](const Decoder& one) { return one.*mark; });
  };
  return {.apply =
              [all](Tokens& tokens) {
                for (const auto& one : all) one.apply(tokens);
              },
          .stream = [all](bool whole) { return sequence_stream(all, whole); },
          .stream_of_one =
              [all] {
                auto stages = std::make_unique<StagesStream>();
                add_stages_of_one(all, *stages);
                return stages;
              },
          .byte_level = any(&Decoder::byte_level),
          .joins = any(&Decoder::joins),
          .only_joins = std::ranges::all_of(all, &Decoder::only_joins),
          .growth = growth};
}

void join(Tokens& tokens) {
  std::string whole;
  for (const auto& token : tokens) whole += token;
  tokens.assign(1, std::move(whole));
}

Decoder fuse() {
  return {.apply = join,
          .stream = [](bool) { return std::make_unique<UnchangedStream>(); },
          .stream_of_one = [] { return std::make_unique<UnchangedStream>(); },
          .joins = true,
          .only_joins = true};
}

}  // namespace

Decoder parse_decoder(const JsonView& json) {
  if (json.is_null())
    return each_token([](std::string token, bool first) { return first ? token : ' ' + token; });
  const auto& type = json.type();
  if (type == "ByteLevel") return parse_byte_level_decoder(json);
  if (type == "ByteFallback") return parse_byte_fallback_decoder(json);
  if (type == "WordPiece") return parse_word_piece_decoder(json);
  if (type == "BPEDecoder") return parse_bpe_decoder(json);
  if (type == "Metaspace") return parse_metaspace_decoder(json);
  if (type == "Replace") return parse_replace_decoder(json);
  if (type == "Strip") return parse_strip_decoder(json);
  if (type == "Sequence") return parse_decoder_sequence(json);
  if (type == "Fuse") {
    json.only({"type"});
    return fuse();
  }
  json.unsupported("the decoder " + type);
}

}  // namespace attentive::tokenizers
