#include "language/network.h"

#include <c10/util/Exception.h>

#ifdef ATTENTIVE_TOKENIZERS
#include <attentive/tokenizers/pretrained_tokenizer.h>
#endif

using namespace attentive;

std::vector<int64_t> Network::encode(std::string_view text, std::string_view option) const {
  TORCH_CHECK_VALUE(tokenizer != nullptr, "no tokenizer for ", option, ": ", why_no_tokenizer,
                    "; --ids takes the text as ids");
  return tokenizer->encode_with_special_tokens(text);
}

void take_tokenizer(Network& network, const ModelFolder& folder) {
  if (folder.tokenizer.empty()) {
    network.why_no_tokenizer = folder.path.string() + " has no tokenizer.json";
    return;
  }
#ifdef ATTENTIVE_TOKENIZERS
  try {
    network.tokenizer = load_any_tokenizer(folder.tokenizer);
  } catch (const c10::ValueError& error) {
    network.why_no_tokenizer = error.what_without_backtrace();
  }
#else
  network.why_no_tokenizer = "this program was built without the component tokenizers";
#endif
}
