#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace attentive::tokenizers {

// These functions make the parts of a `tokenizer.json` that more than one class of tokenizers has, with every
// member that Python writes.

/// Makes a part that has only a type, such as NFC.
nlohmann::json plain_part(const char* type);
/// Makes a Sequence; `list` is "normalizers", "pretokenizers" or "decoders".
nlohmann::json sequence_part(const char* list, nlohmann::json parts);
nlohmann::json byte_level_part(bool add_prefix_space, bool use_regex);
/// Makes a normalizer or a decoder that replaces one text by another.
nlohmann::json replace_part(const char* from, const char* to);
/// Makes a Metaspace; `prepend_scheme` is "always", "first" or "never".
nlohmann::json metaspace_part(const char* prepend_scheme, bool split);
nlohmann::json precompiled_part(std::string_view charsmap);
nlohmann::json bpe_part(nlohmann::json vocabulary, nlohmann::json merges);

/// One entry of a template: "$A", "$B" or the name of a token; and its segment.
using TemplateEntry = std::pair<std::string, int>;
/// Makes a template post-processor; `tokens` holds the names and ids of the tokens in it. Throws Refusal for
/// a name that Python's templates cannot have.
nlohmann::json template_part(const std::vector<TemplateEntry>& single, const std::vector<TemplateEntry>& pair,
                             const std::vector<std::pair<std::string, int64_t>>& tokens);

}  // namespace attentive::tokenizers
