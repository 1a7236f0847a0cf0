#include <algorithm>
#include <functional>
#include <map>
#include <unordered_set>

#include "base/refusal.h"
#include "tokenizers/convert/documents.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

constexpr int64_t kMostExtraIds = 65536;

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

// Appends every split of a token into two known ones, from left to right.
void append_merges(nlohmann::json& merges, std::string_view token,
                   const std::unordered_set<std::string_view>& known) {
  for (size_t cut = 1; cut < token.size(); ++cut) {
    if (!begins_character(token[cut])) continue;
    const auto left = token.substr(0, cut), right = token.substr(cut);
    if (known.contains(left) && known.contains(right)) merges.push_back(nlohmann::json::array({left, right}));
  }
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
  for (const auto& [id, token] : by_id) append_merges(merges, token, known);
  return merges;
}

nlohmann::json fallback_bpe_part(VocabularyParts vocabulary) {
  auto part = bpe_part(std::move(vocabulary.tokens), std::move(vocabulary.merges));
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

// Adds a file's control tokens as special tokens, and, if wanted, its user-defined ones as ordinary added
// tokens.
std::vector<DeclaredToken> tokens_of_file(const SentencePieceModel& model, bool with_user_defined = true) {
  std::vector<DeclaredToken> tokens;
  for (const auto& piece : model.pieces) {
    const bool control = piece.kind == PieceKind::Control;
    if (control || (with_user_defined && piece.kind == PieceKind::UserDefined)) {
      tokens.push_back(control_token(piece.text, control));
    }
  }
  return tokens;
}

nlohmann::json fallback_decoder(bool strips_first_space, bool byte_fallback = true) {
  auto parts = nlohmann::json::array({replace_part(kWordMark, " ")});
  if (byte_fallback) parts.push_back(plain_part("ByteFallback"));
  if (byte_fallback || strips_first_space) parts.push_back(plain_part("Fuse"));
  if (strips_first_space) {
    parts.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return sequence_part("decoders", std::move(parts));
}

// Returns the tokens of a byte-pair model, and the merges that follow from their order.
VocabularyParts ordered_vocabulary(const SentencePieceModel& model) {
  VocabularyParts vocabulary{.tokens = object_of_pieces(model)};
  vocabulary.merges = merges_of_vocabulary(vocabulary.tokens);
  return vocabulary;
}

void draft_llama(Draft& draft, VocabularyParts vocabulary, const TokenizerSettings& settings) {
  const bool prefix = settings.flag("add_prefix_space", true), legacy = settings.flag("legacy", false);
  draft.model = fallback_bpe_part(std::move(vocabulary));
  draft.pre_tokenizer = metaspace_part(!prefix ? "never" : legacy ? "always" : "first", /*split=*/false);
  draft.decoder = fallback_decoder(prefix);
}

void draft_gemma(Draft& draft, VocabularyParts vocabulary) {
  draft.model = fallback_bpe_part(std::move(vocabulary));
  draft.model["unk_token"] = draft.named.text("unk_token");
  draft.normalizer = replace_part(" ", kWordMark);
  draft.pre_tokenizer = {{"type", "Split"},
                         {"pattern", {{"String", " "}}},
                         {"behavior", "MergedWithPrevious"},
                         {"invert", false}};
  draft.decoder = fallback_decoder(/*strips_first_space=*/false);
}

// Drafts the parts that the Unigram classes of encoders share.
void draft_words(Draft& draft, nlohmann::json precompiled, bool prefix) {
  const char* const scheme = prefix ? "always" : "never";
  draft.normalizer = std::move(precompiled);
  draft.pre_tokenizer = sequence_part(
      "pretokenizers",
      nlohmann::json::array({plain_part("WhitespaceSplit"), metaspace_part(scheme, /*split=*/true)}));
  draft.decoder = metaspace_part(scheme, /*split=*/true);
}

int64_t extra_ids_of(const TokenizerSettings& settings) {
  const auto extra_ids = settings.integer("extra_ids", 100);
  if (extra_ids > kMostExtraIds) refuse("extra_ids: expected at most {}, got {}", kMostExtraIds, extra_ids);
  return extra_ids;
}

std::string extra_id(int64_t n) {
  return fmt::format("<extra_id_{}>", n);
}

void draft_t5(Draft& draft, VocabularyParts vocabulary, const TokenizerSettings& settings) {
  draft.model = unigram_part(std::move(vocabulary.tokens), 2);
  draft_words(draft, std::move(vocabulary.precompiled), /*prefix=*/true);
  const auto extra_ids = extra_ids_of(settings);
  if (!draft.extra) draft.extra.emplace();
  auto& extra = *draft.extra;
  const auto in_model = std::count_if(extra.begin(), extra.end(), [](const DeclaredToken& token) {
    return token.content.find("<extra_id_") != token.content.npos;
  });
  if (in_model == 0) {
    for (int64_t n = 0; n < extra_ids; ++n) extra.push_back(text_token(extra_id(n)));
  } else if (extra_ids > 0 && in_model != extra_ids) {
    refuse("extra_ids: expected the number of such tokens in the model, {}, got {}", in_model, extra_ids);
  }
}

void draft_albert(Draft& draft, VocabularyParts vocabulary, const TokenizerSettings& settings) {
  draft.model = unigram_part(std::move(vocabulary.tokens), 1);
  draft_words(draft, nullptr, settings.flag("add_prefix_space", true));
  auto normalizers = nlohmann::json::array({replace_part("``", "\""), replace_part("''", "\"")});
  if (!settings.flag("keep_accents", false)) {
    normalizers.push_back(plain_part("NFKD"));
    normalizers.push_back(plain_part("StripAccents"));
  }
  if (settings.flag("do_lower_case", true)) normalizers.push_back(plain_part("Lowercase"));
  if (!vocabulary.precompiled.is_null()) normalizers.push_back(std::move(vocabulary.precompiled));
  draft.normalizer = sequence_part("normalizers", std::move(normalizers));
}

void draft_xlm_roberta(Draft& draft, VocabularyParts vocabulary, const TokenizerSettings& settings) {
  draft.model = unigram_part(std::move(vocabulary.tokens), 3);
  draft_words(draft, std::move(vocabulary.precompiled), settings.flag("add_prefix_space", true));
}

void draft_camembert(Draft& draft, VocabularyParts vocabulary, const TokenizerSettings& settings) {
  const auto& tokens = vocabulary.tokens;
  const auto unknown = std::find_if(tokens.begin(), tokens.end(), [&](const auto& entry) {
    return entry[0] == draft.named.text("unk_token");
  });
  const auto unknown_id = unknown == tokens.end() ? 0 : unknown - tokens.begin();
  draft.model = unigram_part(std::move(vocabulary.tokens), unknown_id);
  draft_words(draft, std::move(vocabulary.precompiled), settings.flag("add_prefix_space", true));
  if (auto& mask = draft.named.at("mask_token")) {
    if (mask->is_text) mask->lstrip = true;
    mask->is_text = false;
  }
  if (draft.extra) return;
  draft.extra.emplace();
  for (const char* name : {"<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"}) {
    draft.extra->push_back(text_token(name));
  }
}

// Returns the tokens that XlmRoberta and Camembert make of a model's; they have named ones at fixed ids.
nlohmann::json encoder_pieces(TokenizerClass kind, const SentencePieceModel& model,
                              const TokenizerSettings& settings) {
  const NamedTokenTable named(default_tokens(kind), settings);
  const auto text = [&](const char* key) { return named.text(key); };
  auto tokens = kind == TokenizerClass::XlmRoberta ? scored_pieces(model, 3,
                                                                   scored_list({{text("bos_token"), 0.0},
                                                                                {text("pad_token"), 0.0},
                                                                                {text("eos_token"), 0.0},
                                                                                {text("unk_token"), 0.0}}))
                                                   : scored_pieces(model, 1,
                                                                   scored_list({{"<s>NOTUSED", 0.0},
                                                                                {text("pad_token"), 0.0},
                                                                                {"</s>NOTUSED", 0.0},
                                                                                {text("unk_token"), 0.0},
                                                                                {"<unk>NOTUSED", -100.0}}));
  append_scored(tokens, text("mask_token"), 0.0);
  return tokens;
}

}  // namespace

VocabularyParts vocabulary_of(TokenizerClass kind, const SentencePieceModel& model,
                              const TokenizerSettings& settings) {
  VocabularyParts vocabulary;
  if (kind == TokenizerClass::Llama || kind == TokenizerClass::Gemma) {
    vocabulary = ordered_vocabulary(model);
  } else if (kind == TokenizerClass::T5) {
    vocabulary.tokens = scored_pieces(model);
    for (int64_t n = extra_ids_of(settings) - 1; n >= 0; --n) {
      append_scored(vocabulary.tokens, extra_id(n), 0.0);
    }
  } else if (kind == TokenizerClass::Albert) {
    vocabulary.tokens = scored_pieces(model);
  } else {
    if (kind == TokenizerClass::Camembert && !model.is_unigram) {
      refuse("expected a Unigram model for CamembertTokenizer, got another type");
    }
    vocabulary.tokens = encoder_pieces(kind, model, settings);
  }
  if (!model.charsmap.empty()) vocabulary.precompiled = precompiled_part(model.charsmap);
  vocabulary.additional = tokens_of_file(model);
  return vocabulary;
}

void draft_sentence_piece(TokenizerClass kind, Draft& draft, VocabularyParts vocabulary,
                          const TokenizerSettings& settings) {
  if (kind == TokenizerClass::Llama) {
    draft_llama(draft, std::move(vocabulary), settings);
  } else if (kind == TokenizerClass::Gemma) {
    draft_gemma(draft, std::move(vocabulary));
  } else if (kind == TokenizerClass::T5) {
    draft_t5(draft, std::move(vocabulary), settings);
  } else if (kind == TokenizerClass::Albert) {
    draft_albert(draft, std::move(vocabulary), settings);
  } else if (kind == TokenizerClass::XlmRoberta) {
    draft_xlm_roberta(draft, std::move(vocabulary), settings);
  } else {
    draft_camembert(draft, std::move(vocabulary), settings);
  }
}

namespace {

// Returns the names of a model's tokens, by id: those that are stated, where no other token keeps the name,
// else the model's.
std::vector<std::string_view> names_of_pieces(const SentencePieceModel& model,
                                              const std::map<int64_t, DeclaredToken>& stated) {
  std::vector<std::string_view> names;
  std::unordered_set<std::string_view> kept;
  for (const auto& piece : model.pieces) {
    if (!stated.contains(static_cast<int64_t>(names.size()))) kept.insert(piece.text);
    names.push_back(piece.text);
  }
  for (const auto& [id, token] : stated) {
    const auto place = static_cast<size_t>(id);
    if (place < names.size() && !kept.contains(token.content)) names[place] = token.content;
  }
  return names;
}

// Returns the merges of normal tokens, that of the best score first; of equal ones, that of the smaller id,
// then that of the shorter left part.
nlohmann::json merges_by_score(const SentencePieceModel& model, const std::vector<std::string_view>& names) {
  std::unordered_set<std::string_view> normal;
  std::vector<size_t> ranked;
  for (size_t id = 0; id < names.size(); ++id) {
    if (model.pieces[id].kind == PieceKind::Normal && normal.insert(names[id]).second) ranked.push_back(id);
  }
  std::ranges::stable_sort(ranked, std::greater(), [&](size_t id) { return model.pieces[id].score; });
  auto merges = nlohmann::json::array();
  for (const auto id : ranked) append_merges(merges, names[id], normal);
  return merges;
}

// Returns a regular expression for any of the names, the longest first.
std::string pattern_of(std::vector<std::string_view> names) {
  const auto characters = [](std::string_view name) {
    return std::count_if(name.begin(), name.end(), begins_character);
  };
  std::ranges::stable_sort(names, std::greater(), characters);
  std::string pattern;
  for (const auto name : names) {
    if (!pattern.empty()) pattern += '|';
    for (const char c : name) {
      if (std::string_view("()[]{}?*+-|^$\\.&~# \t\n\r\v\f").find(c) != std::string_view::npos)
        pattern += '\\';
      pattern += c;
    }
  }
  return pattern;
}

}  // namespace

// Python follows SentencePiece here. A model's own settings say what happens to spaces; `legacy`, whether a
// space is set in front of every part of a text between added tokens, or in front of the first alone.
Draft draft_backend(const SentencePieceModel& model, TokenizerSettings& settings) {
  NamedTokenTable::Defaults defaults;  // the tokens that the file states
  const auto name = [&](const char* key, int32_t id, const std::string& stated, const char* otherwise) {
    if (id >= 0) defaults.emplace_back(key, stated.empty() ? otherwise : stated);
  };
  name("bos_token", model.begin_id, model.begin, "<s>");
  name("eos_token", model.end_id, model.end, "</s>");
  name("unk_token", model.unknown_id, model.unknown, "<unk>");
  const std::map<int64_t, DeclaredToken> none;
  const auto names = names_of_pieces(model, model.is_unigram ? none : settings.added());
  std::vector<std::string_view> user_defined;
  for (size_t id = 0; id < names.size(); ++id) {
    if (model.pieces[id].kind == PieceKind::UserDefined) user_defined.push_back(names[id]);
  }
  const bool prefix = model.add_dummy_prefix;
  const bool legacy = settings.flag("legacy", !settings.states("legacy"));  // null is false
  if (prefix) settings.find_added_first();
  Draft draft(NamedTokenTable(defaults, settings));
  draft.extra = settings.extra() ? settings.extra() : tokens_of_file(model, /*with_user_defined=*/false);

  if (model.is_unigram) {
    draft.model = unigram_part(scored_pieces(model), model.unknown_id);
  } else {
    auto tokens = nlohmann::json::object();
    for (size_t id = 0; id < names.size(); ++id) tokens[std::string(names[id])] = id;
    draft.model = fallback_bpe_part({.tokens = std::move(tokens), .merges = merges_by_score(model, names)});
    draft.model["unk_token"] = model.unknown;
    draft.model["ignore_merges"] = !user_defined.empty();
  }
  draft.model["byte_fallback"] = model.byte_fallback;

  auto normalizers = nlohmann::json::array(), cuts = normalizers;
  if (!model.charsmap.empty()) normalizers.push_back(precompiled_part(model.charsmap));
  if (model.remove_extra_whitespaces) {
    normalizers.push_back(replace_matches_part(R"(\A +| +\z)", ""));
    normalizers.push_back(replace_matches_part(" {2,}", " "));
  }
  if (model.escape_whitespaces) normalizers.push_back(replace_part(" ", kWordMark));
  if (prefix && legacy) normalizers.push_back(replace_matches_part("\\A\u2581", "\u2581\u2581"));
  draft.normalizer = sequence_part("normalizers", std::move(normalizers));

  if (prefix) cuts.push_back(metaspace_part(legacy ? "always" : "first", /*split=*/false));
  if (!user_defined.empty()) cuts.push_back(isolating_part(pattern_of(user_defined)));
  if (!cuts.empty()) draft.pre_tokenizer = sequence_part("pretokenizers", std::move(cuts));

  draft.decoder = fallback_decoder(prefix, model.byte_fallback);
  return draft;
}

}  // namespace attentive::tokenizers
