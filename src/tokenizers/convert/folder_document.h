#pragma once

#include <filesystem>
#include <string>

#include "tokenizers/convert/tokenizer_settings.h"

namespace attentive::tokenizers {

/// Returns the text of a `tokenizer.json` for a folder that lacks one, made of the files that the folder has:
/// the text that Python's `AutoTokenizer.from_pretrained(folder).save_pretrained(folder)` would write. Throws
/// Refusal with what is missing or wrong, and, if only Python's class can read the folder, with that line of
/// Python; std::system_error for a file that cannot be read.
std::string convert_folder(const std::filesystem::path& folder);

/// Returns the document of a lone `vocab.txt`, read as by Python's BertTokenizer.
std::string convert_vocab_txt(const std::filesystem::path& file, const TokenizerSettings& settings);

}  // namespace attentive::tokenizers
