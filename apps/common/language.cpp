#include "common/language.h"

#ifdef ATTENTIVE_TOKENIZERS
#include <attentive/tokenizers/pretrained_tokenizer.h>
#endif

namespace apps {

attentive::TokenizerReader tokenizer_reader() {
#ifdef ATTENTIVE_TOKENIZERS
  return attentive::parse_any_tokenizer;
#else
  return attentive::parse_tokenizer;
#endif
}

attentive::LanguageModel load_language(const std::filesystem::path& path, at::Device device,
                                       const attentive::PretrainedOptions& pretrained) {
  return attentive::load_language_model(
      path, {.device = device, .read_tokenizer = tokenizer_reader(), .pretrained = pretrained});
}

}  // namespace apps
