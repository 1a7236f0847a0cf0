#pragma once

#include <filesystem>
#include <string>

#include "tokenizers/convert/tokenizer_settings.h"

namespace attentive::tokenizers {

/// The text of the `tokenizer.json` of a folder that lacks one, made of the files that it has: what Python's
/// `AutoTokenizer.from_pretrained(folder).save_pretrained(folder)` would write there. Throws Refusal with what
/// is missing or wrong, and, where Python's class reads the folder and this does not, with that line of
/// Python; std::system_error for a file that cannot be read.
std::string convert_folder(const std::filesystem::path& folder);

/// The same of a `vocab.txt` alone, as Python's BertTokenizer.
std::string convert_vocab_txt(const std::filesystem::path& file, const TokenizerSettings& settings);

}  // namespace attentive::tokenizers
