#include "tokenizers/normalizer.h"

#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

template <class Keep>
std::string keep_if(std::string_view text, Keep keep) {
  std::string kept;
  kept.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (keep(next_char(text, at))) kept += text.substr(begin, at - begin);
  }
  return kept;
}

// The blocks that BERT calls Chinese.
bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// Without control characters, and with plain spaces.
std::string clean(std::string_view text) {
  std::string cleaned;
  cleaned.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(text, at);
    const bool line_end = c == '\t' || c == '\n' || c == '\r';
    if (c == 0 || c == 0xFFFD || (is_other(c) && !line_end)) continue;
    cleaned += is_space(c) ? " " : text.substr(begin, at - begin);
  }
  return cleaned;
}

std::string space_chinese(std::string_view text) {
  std::string spaced;
  spaced.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool chinese = is_chinese(next_char(text, at));
    if (chinese) spaced += ' ';
    spaced += text.substr(begin, at - begin);
    if (chinese) spaced += ' ';
  }
  return spaced;
}

std::string strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    size_t at = 0;
    if (!is_space(next_char(text, at))) break;
    text.remove_prefix(at);
  }
  while (right && !text.empty() && is_space(previous_char(text, text.size()))) {
    text = text.substr(0, previous_start(text, text.size()));
  }
  return std::string(text);
}

Normalizer parse_bert(const JsonView& json) {
  json.only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool cleans = json.at("clean_text").boolean();
  const bool chinese = json.at("handle_chinese_chars").boolean();
  const bool lowers = json.at("lowercase").boolean();
  const auto stated = json.find("strip_accents");
  const bool strips = stated ? stated->boolean() : lowers;
  return [=](std::string_view given) {
    std::string text(given);
    if (cleans) text = clean(text);
    if (chinese) text = space_chinese(text);
    if (strips)
      text = keep_if(normalize(text, NormalForm::D), [](char32_t c) { return !is_nonspacing_mark(c); });
    if (lowers) text = lower_case(text);
    return text;
  };
}

Normalizer parse_normalizer_sequence(const JsonView& json) {
  json.only({"type", "normalizers"});
  std::vector<Normalizer> all;
  for (const auto& item : json.at("normalizers").items()) {
    if (item.is_null()) item.expected("a normalizer");
    all.push_back(parse_normalizer(item));
  }
  return [all](std::string_view given) {
    std::string text(given);
    for (const auto& one : all) text = one(text);
    return text;
  };
}

Normalizer parse_strip(const JsonView& json) {
  json.only({"type", "strip_left", "strip_right"});
  const bool left = json.at("strip_left").boolean(), right = json.at("strip_right").boolean();
  return [=](std::string_view text) { return strip(text, left, right); };
}

}  // namespace

Normalizer parse_normalizer(const JsonView& json) {
  if (json.is_null()) return nullptr;
  const auto& type = json.type();
  if (type == "BertNormalizer") return parse_bert(json);
  if (type == "Sequence") return parse_normalizer_sequence(json);
  if (type == "Strip") return parse_strip(json);
  const auto plain = [&](Normalizer normalizer) {
    json.only({"type"});
    return normalizer;
  };
  const auto to = [&](NormalForm form) {
    return plain([form](std::string_view text) { return normalize(text, form); });
  };
  if (type == "NFC") return to(NormalForm::C);
  if (type == "NFD") return to(NormalForm::D);
  if (type == "NFKC") return to(NormalForm::KC);
  if (type == "NFKD") return to(NormalForm::KD);
  if (type == "Lowercase") return plain(lower_case);
  if (type == "StripAccents") {
    return plain([](std::string_view text) { return keep_if(text, [](char32_t c) { return !is_mark(c); }); });
  }
  json.unsupported("the normalizer " + type);
}

}  // namespace attentive::tokenizers
