#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace attentive::tokenizers {

// The parts of a `tokenizer.json` that more than one class of tokenizers has, with every member that Python writes.

/// A part with a type alone, such as NFC.
nlohmann::json plain_part(const char* type);
/// `list`: "normalizers", "pretokenizers" or "decoders".
nlohmann::json sequence_part(const char* list, nlohmann::json parts);
nlohmann::json byte_level_part(bool add_prefix_space, bool use_regex);
/// Replaces one text by another, as a normalizer or a decoder.
nlohmann::json replace_part(const char* from, const char* to);
/// `prepend_scheme`: "always", "first" or "never".
nlohmann::json metaspace_part(const char* prepend_scheme, bool split);
nlohmann::json precompiled_part(std::string_view charsmap);
nlohmann::json bpe_part(nlohmann::json vocabulary, nlohmann::json merges);

/// A piece of a template: "$A", "$B" or the name of a token; and its segment.
using TemplateEntry = std::pair<std::string, int>;
/// A template post-processor; `tokens`: the names of tokens in it and their ids. Throws Refusal for a name that
/// Python's templates cannot have.
nlohmann::json template_part(const std::vector<TemplateEntry>& single, const std::vector<TemplateEntry>& pair,
                             const std::vector<std::pair<std::string, int64_t>>& tokens);

}  // namespace attentive::tokenizers
