// A user's program that tokenizes text with a Python model's tokenizer.

#include <cstdio>
#include <string>

#include <attentive/tokenizers/pretrained_tokenizer.h>

int main() {
  const std::string text = "We'll see: naïve 東京 👍🏽 123\n";
  const auto tokenizer = attentive::PretrainedTokenizer::load(FOLDER "/llama3.json");
  const auto ids = tokenizer.encode_with_special_tokens(text);
  const auto back = tokenizer.decode(ids, /*skip_special_tokens=*/true);
  std::printf("%zu tokens, the first is %s\n", ids.size(), std::string(tokenizer.bytes(ids[0])).c_str());
  return back == text && tokenizer.is_special(ids[0]) ? 0 : 1;
}
