#pragma once

#include <filesystem>

#include <attentive/train/language_model.h>

namespace apps {

/// Reads this package's tokenizers and, if the program was built with the component tokenizers, those of
/// Python's models.
attentive::TokenizerReader tokenizer_reader();

/// Calls `attentive::load_language_model` with that reader.
attentive::LanguageModel load_language(const std::filesystem::path& path, at::Device device = at::kCPU,
                                       const attentive::PretrainedOptions& pretrained = {});

}  // namespace apps
