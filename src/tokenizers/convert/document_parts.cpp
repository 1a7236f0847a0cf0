#include "tokenizers/convert/document_parts.h"

#include <cstdint>

#include "base/refusal.h"

namespace attentive::tokenizers {
namespace {

constexpr const char* kMetaspace = "\u2581";

std::string to_base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t n = 0; n < 3; ++n) {
      group = group << 8 | (n < count ? static_cast<uint8_t>(bytes[i + n]) : 0U);
    }
    for (size_t n = 0; n < 4; ++n) text += n <= count ? kDigits[group >> (18 - 6 * n) & 63] : '=';
  }
  return text;
}

nlohmann::json template_pieces(const std::vector<TemplateEntry>& entries) {
  auto pieces = nlohmann::json::array();
  for (const auto& [name, type_id] : entries) {
    const bool is_sequence = name == "$A" || name == "$B";
    pieces.push_back({{is_sequence ? "Sequence" : "SpecialToken",
                       {{"id", is_sequence ? name.substr(1) : name}, {"type_id", type_id}}}});
  }
  return pieces;
}

}  // namespace

nlohmann::json plain_part(const char* type) {
  return {{"type", type}};
}

nlohmann::json sequence_part(const char* list, nlohmann::json parts) {
  return {{"type", "Sequence"}, {list, std::move(parts)}};
}

nlohmann::json byte_level_part(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

nlohmann::json replace_part(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

nlohmann::json metaspace_part(const char* prepend_scheme, bool split) {
  return {{"type", "Metaspace"},
          {"replacement", kMetaspace},
          {"prepend_scheme", prepend_scheme},
          {"split", split}};
}

nlohmann::json precompiled_part(std::string_view charsmap) {
  return {{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(charsmap)}};
}

nlohmann::json bpe_part(nlohmann::json vocabulary, nlohmann::json merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

nlohmann::json template_part(const std::vector<TemplateEntry>& single, const std::vector<TemplateEntry>& pair,
                             const std::vector<std::pair<std::string, int64_t>>& tokens) {
  auto known = nlohmann::json::object();
  for (const auto& [name, id] : tokens) {
    if (name.empty() || name.find_first_of(" :") != name.npos || name[0] == '$') {
      refuse("expected a token without spaces, colons and a dollar sign around a text, got {}",
             quoted_name(name));
    }
    known[name] = {
        {"id", name}, {"ids", nlohmann::json::array({id})}, {"tokens", nlohmann::json::array({name})}};
  }
  return {{"type", "TemplateProcessing"},
          {"single", template_pieces(single)},
          {"pair", template_pieces(pair)},
          {"special_tokens", std::move(known)}};
}

}  // namespace attentive::tokenizers
