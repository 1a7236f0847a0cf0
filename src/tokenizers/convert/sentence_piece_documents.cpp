#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/refusal.h"
#include "tokenizers/convert/documents.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

constexpr int64_t kMostExtraIds = 65536;

NamedTokenTable::Defaults default_tokens(TokenizerClass kind, const SentencePieceModel& model) {
  switch (kind) {
    case TokenizerClass::Llama:
      return {{"unk_token", "<unk>"}, {"bos_token", "<s>"}, {"eos_token", "</s>"}};
    case TokenizerClass::Gemma:
      return {{"unk_token", "<unk>"},
              {"bos_token", "<bos>"},
              {"eos_token", "<eos>"},
              {"pad_token", "<pad>"},
              {"mask_token", "<mask>"}};
    case TokenizerClass::T5:
      return {{"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
    case TokenizerClass::Albert:
      return {{"bos_token", "[CLS]"}, {"eos_token", "[SEP]"}, {"unk_token", "<unk>"},  {"sep_token", "[SEP]"},
              {"pad_token", "<pad>"}, {"cls_token", "[CLS]"}, {"mask_token", "[MASK]"}};
    case TokenizerClass::XlmRoberta:
    case TokenizerClass::Camembert:
      return {{"bos_token", "<s>"},   {"eos_token", "</s>"},  {"sep_token", "</s>"},   {"cls_token", "<s>"},
              {"unk_token", "<unk>"}, {"pad_token", "<pad>"}, {"mask_token", "<mask>"}};
    default:
      break;
  }
  // TokenizersBackend, the class for models without one of their own, takes the tokens that the file states.
  NamedTokenTable::Defaults defaults;
  const auto add = [&](const char* key, int32_t id, const std::string& stated, const char* otherwise) {
    if (id >= 0) defaults.emplace_back(key, stated.empty() ? otherwise : stated);
  };
  add("bos_token", model.begin_id, model.begin, "<s>");
  add("eos_token", model.end_id, model.end, "</s>");
  add("unk_token", model.unknown_id, model.unknown, "<unk>");
  return defaults;
}

nlohmann::json object_of_pieces(const SentencePieceModel& model) {
  auto vocabulary = nlohmann::json::object();
  for (size_t id = 0; id < model.pieces.size(); ++id) vocabulary[model.pieces[id].text] = id;
  return vocabulary;
}

void append_scored(nlohmann::json& list, const std::string& token, double score) {
  list.push_back(nlohmann::json::array({token, score}));
}

// Returns the tokens and their scores, where `first` stands in place of the first `skipped` tokens.
nlohmann::json scored_pieces(const SentencePieceModel& model, size_t skipped = 0,
                             nlohmann::json first = nlohmann::json::array()) {
  for (size_t id = skipped; id < model.pieces.size(); ++id) {
    append_scored(first, model.pieces[id].text, model.pieces[id].score);
  }
  return first;
}

// Returns the tokens that a class puts before those of the file. Their ids are fixed, because published
// models use them.
nlohmann::json scored_list(std::initializer_list<std::pair<std::string, double>> tokens) {
  auto list = nlohmann::json::array();
  for (const auto& [token, score] : tokens) append_scored(list, token, score);
  return list;
}

// Returns the merges that a vocabulary implies: for each token, in the order of ids, every split of it into
// two other tokens, from left to right. `vocabulary` is an object of tokens and ids.
nlohmann::json merges_of_vocabulary(const nlohmann::json& vocabulary) {
  std::vector<std::pair<int64_t, std::string_view>> by_id;
  by_id.reserve(vocabulary.size());
  std::unordered_set<std::string_view> known;
  for (const auto& [token, id] : vocabulary.get_ref<const nlohmann::json::object_t&>()) {
    by_id.emplace_back(id.get<int64_t>(), token);
    known.insert(token);
  }
  std::sort(by_id.begin(), by_id.end());
  auto merges = nlohmann::json::array();
  for (const auto& [id, token] : by_id) {
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if (!begins_character(token[cut])) continue;
      const auto left = token.substr(0, cut), right = token.substr(cut);
      if (known.contains(left) && known.contains(right))
        merges.push_back(nlohmann::json::array({left, right}));
    }
  }
  return merges;
}

// Makes the part of a byte-pair model whose merges follow from the order of its tokens.
nlohmann::json ordered_bpe_part(nlohmann::json vocabulary) {
  auto merges = merges_of_vocabulary(vocabulary);
  auto part = bpe_part(std::move(vocabulary), std::move(merges));
  part["fuse_unk"] = true;
  part["byte_fallback"] = true;
  return part;
}

nlohmann::json unigram_part(nlohmann::json vocabulary, int64_t unknown_id) {
  if (unknown_id < 0 || unknown_id >= static_cast<int64_t>(vocabulary.size())) {
    refuse("expected an unknown token among {} tokens, got the id {}", vocabulary.size(), unknown_id);
  }
  return {{"type", "Unigram"},
          {"unk_id", unknown_id},
          {"vocab", std::move(vocabulary)},
          {"byte_fallback", false}};
}

// Adds a file's control tokens as special tokens, and its user-defined ones as ordinary added tokens.
std::vector<DeclaredToken> tokens_of_file(const SentencePieceModel& model) {
  std::vector<DeclaredToken> tokens;
  for (const auto& piece : model.pieces) {
    const bool control = piece.kind == PieceKind::Control;
    if (control || piece.kind == PieceKind::UserDefined) {
      tokens.push_back(control_token(piece.text, control));
    }
  }
  return tokens;
}

nlohmann::json fallback_decoder(bool strips_first_space) {
  auto parts =
      nlohmann::json::array({replace_part(kWordMark, " "), plain_part("ByteFallback"), plain_part("Fuse")});
  if (strips_first_space) {
    parts.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return sequence_part("decoders", std::move(parts));
}

void draft_llama(Draft& draft, const SentencePieceModel& model, const TokenizerSettings& settings) {
  const bool prefix = settings.flag("add_prefix_space", true), legacy = settings.flag("legacy", false);
  draft.model = ordered_bpe_part(object_of_pieces(model));
  draft.pre_tokenizer = metaspace_part(!prefix ? "never" : legacy ? "always" : "first", /*split=*/false);
  draft.decoder = fallback_decoder(prefix);
}

void draft_gemma(Draft& draft, const SentencePieceModel& model) {
  draft.model = ordered_bpe_part(object_of_pieces(model));
  draft.model["unk_token"] = draft.named.text("unk_token");
  draft.normalizer = replace_part(" ", kWordMark);
  draft.pre_tokenizer = {{"type", "Split"},
                         {"pattern", {{"String", " "}}},
                         {"behavior", "MergedWithPrevious"},
                         {"invert", false}};
  draft.decoder = fallback_decoder(/*strips_first_space=*/false);
}

// Renames tokens of the file that have another name at the same id in the settings.
void rename_pieces(nlohmann::json& vocabulary, const TokenizerSettings& settings) {
  std::map<int64_t, std::string> by_id;
  for (const auto& [token, id] : vocabulary.items()) by_id[id.get<int64_t>()] = token;
  for (const auto& [id, token] : settings.added()) {
    const auto old = by_id.find(id);
    if (old == by_id.end() || old->second.empty() || vocabulary.contains(token.content)) continue;
    vocabulary.erase(old->second);
    vocabulary[token.content] = id;
    old->second = token.content;
  }
}

void check_merges(const nlohmann::json& vocabulary, const nlohmann::json& merges) {
  for (const auto& merge : merges) {
    const auto &left = merge[0].get_ref<const std::string&>(),
               &right = merge[1].get_ref<const std::string&>();
    for (const auto& token : {left, right, left + right}) {
      if (vocabulary.contains(token)) continue;
      refuse("expected no other name for {}, which is a part of tokens or consists of them",
             quoted_name(token));
    }
  }
}

void draft_backend(Draft& draft, const SentencePieceModel& model, const TokenizerSettings& settings) {
  if (model.is_unigram) {
    refuse("expected a byte-pair model for TokenizersBackend, got a Unigram one{}", kInPython);
  }
  draft.model = ordered_bpe_part(object_of_pieces(model));
  if (!settings.added().empty()) {
    rename_pieces(draft.model["vocab"], settings);
    check_merges(draft.model["vocab"], draft.model["merges"]);
  }
  draft.model["unk_token"] = model.unknown;
  draft.model["byte_fallback"] = model.byte_fallback;
  auto normalizers = nlohmann::json::array();
  if (!model.charsmap.empty()) normalizers.push_back(precompiled_part(model.charsmap));
  normalizers.push_back(replace_part(" ", kWordMark));
  draft.normalizer = sequence_part("normalizers", std::move(normalizers));
  draft.decoder = model.byte_fallback
                      ? fallback_decoder(/*strips_first_space=*/false)
                      : sequence_part("decoders", nlohmann::json::array({replace_part(kWordMark, " ")}));
}

// Drafts the parts that the Unigram classes of encoders share.
void draft_words(Draft& draft, const SentencePieceModel& model, bool prefix) {
  const char* const scheme = prefix ? "always" : "never";
  if (!model.charsmap.empty()) draft.normalizer = precompiled_part(model.charsmap);
  draft.pre_tokenizer = sequence_part(
      "pretokenizers",
      nlohmann::json::array({plain_part("WhitespaceSplit"), metaspace_part(scheme, /*split=*/true)}));
  draft.decoder = metaspace_part(scheme, /*split=*/true);
}

void draft_t5(Draft& draft, const SentencePieceModel& model, const TokenizerSettings& settings) {
  const auto extra_ids = settings.integer("extra_ids", 100);
  if (extra_ids > kMostExtraIds) refuse("extra_ids: expected at most {}, got {}", kMostExtraIds, extra_ids);
  const auto name = [](int64_t n) { return fmt::format("<extra_id_{}>", n); };
  auto vocabulary = scored_pieces(model);
  for (int64_t n = extra_ids - 1; n >= 0; --n) append_scored(vocabulary, name(n), 0.0);
  draft.model = unigram_part(std::move(vocabulary), 2);
  draft_words(draft, model, /*prefix=*/true);
  auto& extra = *draft.extra;
  const auto in_model = std::count_if(extra.begin(), extra.end(), [](const DeclaredToken& token) {
    return token.content.find("<extra_id_") != token.content.npos;
  });
  if (in_model == 0) {
    for (int64_t n = 0; n < extra_ids; ++n) extra.push_back(text_token(name(n)));
  } else if (extra_ids > 0 && in_model != extra_ids) {
    refuse("extra_ids: expected the number of such tokens in the model, {}, got {}", in_model, extra_ids);
  }
}

void draft_albert(Draft& draft, const SentencePieceModel& model, const TokenizerSettings& settings) {
  draft.model = unigram_part(scored_pieces(model), 1);
  draft_words(draft, model, settings.flag("add_prefix_space", true));
  auto normalizers = nlohmann::json::array({replace_part("``", "\""), replace_part("''", "\"")});
  if (!settings.flag("keep_accents", false)) {
    normalizers.push_back(plain_part("NFKD"));
    normalizers.push_back(plain_part("StripAccents"));
  }
  if (settings.flag("do_lower_case", true)) normalizers.push_back(plain_part("Lowercase"));
  if (!model.charsmap.empty()) normalizers.push_back(precompiled_part(model.charsmap));
  draft.normalizer = sequence_part("normalizers", std::move(normalizers));
}

void draft_xlm_roberta(Draft& draft, const SentencePieceModel& model, const TokenizerSettings& settings) {
  const auto& named = draft.named;
  auto vocabulary = scored_pieces(model, 3,
                                  scored_list({{named.text("bos_token"), 0.0},
                                               {named.text("pad_token"), 0.0},
                                               {named.text("eos_token"), 0.0},
                                               {named.text("unk_token"), 0.0}}));
  append_scored(vocabulary, named.text("mask_token"), 0.0);
  draft.model = unigram_part(std::move(vocabulary), 3);
  draft_words(draft, model, settings.flag("add_prefix_space", true));
}

void draft_camembert(Draft& draft, const SentencePieceModel& model, const TokenizerSettings& settings) {
  if (!model.is_unigram) refuse("expected a Unigram model for CamembertTokenizer, got another type");
  const auto& named = draft.named;
  const auto unknown = named.text("unk_token");
  auto vocabulary = scored_pieces(model, 1,
                                  scored_list({{"<s>NOTUSED", 0.0},
                                               {named.text("pad_token"), 0.0},
                                               {"</s>NOTUSED", 0.0},
                                               {unknown, 0.0},
                                               {"<unk>NOTUSED", -100.0}}));
  append_scored(vocabulary, named.text("mask_token"), 0.0);
  int64_t unknown_id = 0;
  while (vocabulary[static_cast<size_t>(unknown_id)][0] != unknown)
    ++unknown_id;  // finds the fourth token at the latest
  draft.model = unigram_part(std::move(vocabulary), unknown_id);
  draft_words(draft, model, settings.flag("add_prefix_space", true));
  auto& mask = *draft.named.at("mask_token");
  if (mask.is_text) mask.lstrip = true;
  mask.is_text = false;
}

}  // namespace

Draft draft_sentence_piece(TokenizerClass kind, const SentencePieceModel& model,
                           const TokenizerSettings& settings) {
  Draft draft(NamedTokenTable(default_tokens(kind, model), settings));
  draft.extra = tokens_of_file(model);
  if (kind == TokenizerClass::Llama) {
    draft_llama(draft, model, settings);
  } else if (kind == TokenizerClass::Gemma) {
    draft_gemma(draft, model);
  } else if (kind == TokenizerClass::T5) {
    draft_t5(draft, model, settings);
  } else if (kind == TokenizerClass::Albert) {
    draft_albert(draft, model, settings);
  } else if (kind == TokenizerClass::XlmRoberta) {
    draft_xlm_roberta(draft, model, settings);
  } else if (kind == TokenizerClass::Camembert) {
    draft_camembert(draft, model, settings);
  } else {
    draft_backend(draft, model, settings);
  }
  if (settings.extra()) draft.extra = settings.extra();
  return draft;
}

}  // namespace attentive::tokenizers
