// Answers tools/checks/fresh_tokenizers.py: what a tokenizer makes of texts and of ids.
//
//   tokenizer_driver TOKENIZER
//
// The first line on standard output tells whether the file or folder could be read. Then each line on
// standard input, {"text": …, "second": …, "ids": […]}, is answered with one line; what was refused has its
// message there.

#include <iostream>
#include <string>

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <attentive/text/tokenizer.h>
#include <attentive/tokenizers/pretrained_tokenizer.h>

using nlohmann::json;
using namespace attentive;

namespace {

void write_line(const json& value) {
  std::cout << value.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace) << "\n"
            << std::flush;
}

json refusal(const c10::Error& error) {
  return {{"refused", error.what_without_backtrace()}};
}

// Returns the call's result, or how it was refused.
template <class Call>
json answer_of(Call call) {
  try {
    return call();
  } catch (const c10::Error& error) {
    return refusal(error);
  }
}

std::string streamed(const PretrainedTokenizer& tokenizer, const std::vector<int64_t>& ids, bool skip) {
  const auto decoder = tokenizer.streaming_decoder(skip);
  std::string text;
  for (const auto id : ids) text += decoder->push(id);
  return text + decoder->finish();
}

json texts_of(const PretrainedTokenizer& tokenizer, const std::vector<int64_t>& ids) {
  json texts;
  for (const bool skip : {false, true}) {
    texts.push_back(answer_of([&] { return tokenizer.decode(ids, skip); }));
    texts.push_back(answer_of([&] { return streamed(tokenizer, ids, skip); }));
  }
  return texts;
}

json members_of(const Encoding& encoding) {
  auto offsets = json::array();
  for (const auto& [begin, end] : encoding.offsets) offsets.push_back({begin, end});
  return {{"ids", encoding.ids},
          {"type_ids", encoding.type_ids},
          {"offsets", offsets},
          {"attention_mask", encoding.attention_mask},
          {"special_tokens_mask", encoding.special_tokens_mask}};
}

json answer(const PretrainedTokenizer& tokenizer, const json& question) {
  const auto text = question.at("text").get<std::string>();
  const auto second = question.at("second").get<std::string>();
  const auto ids = question.at("ids").get<std::vector<int64_t>>();
  json told;
  told["plain"] =
      answer_of([&] { return members_of(tokenizer.encode_text(text, {.add_special_tokens = false})); });
  told["special"] = answer_of([&] { return members_of(tokenizer.encode_text(text)); });
  told["pair"] = answer_of([&] { return members_of(tokenizer.encode_pair(text, second)); });
  told["batch"] = answer_of([&] {
    json members;
    for (const auto& one : tokenizer.encode_batch({text, second}, {.threads = 1}))
      members.push_back(members_of(one));
    return members;
  });
  told["ids alone"] = answer_of([&] { return tokenizer.encode(text); });
  told["special ids alone"] = answer_of([&] { return tokenizer.encode_with_special_tokens(text); });
  if (told["special ids alone"].is_array()) told["text"] = texts_of(tokenizer, told["special ids alone"]);
  told["ids_text"] = texts_of(tokenizer, ids);
  return told;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tokenizer_driver TOKENIZER\n";
    return 2;
  }
  try {
    const auto tokenizer = PretrainedTokenizer::load(argv[1]);
    write_line({{"vocab_size", tokenizer.vocab_size()}});
    std::string line;
    while (std::getline(std::cin, line)) write_line(answer(tokenizer, json::parse(line)));
  } catch (const c10::Error& error) {
    write_line(refusal(error));
  }
  return 0;
}
