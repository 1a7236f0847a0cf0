#pragma once

#include <filesystem>
#include <memory>

#include <attentive/models/model_folder.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/language_model.h>

namespace apps {

/// Reads this package's tokenizers and, if the program was built with the component tokenizers, those of
/// Python's models.
attentive::TokenizerReader tokenizer_reader();

/// Reads the tokenizers of Python's folders; empty if the program was built without the component tokenizers.
attentive::FolderTokenizerReader folder_tokenizer_reader();

/// The tokenizer of a Python folder. Throws c10::ValueError where there is none, or none that can be read.
std::unique_ptr<attentive::Tokenizer> read_tokenizer_of(const attentive::ModelFolder& folder);

/// `attentive::load_language_model` with these readers.
attentive::LanguageModel load_language(const std::filesystem::path& path, at::Device device = at::kCPU,
                                       const attentive::PretrainedOptions& pretrained = {});

}  // namespace apps
