#include "common/language.h"

#include <c10/util/Exception.h>

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

attentive::FolderTokenizerReader folder_tokenizer_reader() {
#ifdef ATTENTIVE_TOKENIZERS
  return attentive::load_any_tokenizer;
#else
  return {};
#endif
}

std::unique_ptr<attentive::Tokenizer> read_tokenizer_of(const attentive::ModelFolder& folder) {
  const auto read = folder_tokenizer_reader();
  TORCH_CHECK_VALUE(!folder.tokenizer.empty() || (read && !folder.vocabulary.empty()), folder.path.string(),
                    " has no tokenizer.json");
  return read ? read(folder.path) : tokenizer_reader()(attentive::read_text(folder.tokenizer));
}

attentive::LanguageModel load_language(const std::filesystem::path& path, at::Device device,
                                       const attentive::PretrainedOptions& pretrained) {
  return attentive::load_language_model(path, {.device = device,
                                               .read_tokenizer = tokenizer_reader(),
                                               .read_folder_tokenizer = folder_tokenizer_reader(),
                                               .pretrained = pretrained});
}

}  // namespace apps
