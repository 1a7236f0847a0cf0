// Any text at all: a model is read or refused, and what it spells are tokens of its vocabulary that follow
// one another over the whole piece, but for the tokens of bytes, which share their place.
//
//   build/fuzz/tests/unigram_fuzz -max_total_time=600 -dict=tests/fuzz/unigram.dict new
//   build/fuzz/tests/corpora/unigram_fuzz

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/refusal.h"
#include "tokenizers/models.h"

namespace {

[[noreturn]] void report(const char* what) {
  std::fputs(what, stderr);
  std::abort();
}

void spell(const attentive::tokenizers::Model& model, std::string_view piece) {
  std::vector<attentive::tokenizers::Token> tokens;
  try {
    model.encode(piece, tokens);
  } catch (const attentive::Refusal&) {
    return;  // an unknown character without a token
  }
  uint32_t end = 0, begin = 0;
  for (const auto& token : tokens) {
    if (!model.vocabulary().token_of(token.id)) report("an id without a token\n");
    if (token.begin != end && !(token.begin == begin && token.end == end)) report("a gap between tokens\n");
    if (token.end < token.begin) report("a token that ends before it begins\n");
    begin = token.begin;
    end = token.end;
  }
  if (end != piece.size()) report("the tokens do not spell the piece\n");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const auto document = attentive::tokenizers::parse_json(input);
    const attentive::tokenizers::JsonView view(document);
    if (!view.has("type") || view.raw()["type"] != "Unigram")
      return 0;  // the others leave unknown characters out
    const auto model = attentive::tokenizers::parse_model(view);
    for (const char* piece : {"a", "ab",
                              "\xE2\x96\x81"
                              "a bab",
                              "\xC3\xA9\xF0\x9F\x98\x80"
                              "aaaaaaaa",
                              "<unk>z<0x61>"}) {
      spell(*model, piece);
    }
    std::string all;
    model->vocabulary().for_each([&](std::string_view token, int64_t) {
      if (all.size() < 4096) all += token;
    });
    if (!all.empty()) spell(*model, all);
  } catch (const attentive::Refusal&) {
  }
  return 0;
}
