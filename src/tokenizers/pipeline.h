#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "tokenizers/added_tokens.h"
#include "tokenizers/decoder.h"
#include "tokenizers/json_view.h"
#include "tokenizers/length_limits.h"
#include "tokenizers/models.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/post_processor.h"
#include "tokenizers/pre_tokenizer.h"
#include "tokenizers/word_cache.h"

namespace attentive::tokenizers {

/// What a thread keeps from one text to the next.
struct Workspace {
  explicit Workspace(const Model& model) : words(model) {}

  Pieces pieces;
  WordCache words;
};

/// All parts of a `tokenizer.json`, in the order in which a text goes through them. Errors are Refusals.
class Pipeline {
 public:
  explicit Pipeline(const JsonView& document);

  /// What the file says of lengths.
  const LengthLimits& limits() const { return limits_; }
  const PostProcessor& post_processor() const { return post_processor_; }

  Workspace workspace() const { return Workspace(*model_); }

  /// One text, or two, without padding.
  Encoding encode(std::span<const std::string_view> texts, bool add_special_tokens, Detail detail,
                  const std::optional<Truncation>& truncation, Workspace& workspace) const;
  /// The ids of one text, neither shortened nor filled, without special tokens.
  std::vector<int64_t> encode_whole(std::string_view text) const;
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens) const;
  /// The same for tokens that come one at a time: `token_to_decode` is what it is fed with.
  std::unique_ptr<DecoderStream> decoder_stream() const { return decoder_.stream(/*whole=*/false); }
  /// None for a token that is left out.
  std::optional<std::string_view> token_to_decode(int64_t id, bool skip_special_tokens) const;

  int64_t vocab_size() const;
  std::string_view bytes(int64_t id) const;
  std::optional<int64_t> token_to_id(std::string_view token) const;
  bool is_special(int64_t id) const;

 private:
  void cut_into_pieces(std::string_view text, bool with_origins, Pieces& pieces) const;
  /// All tokens of a text, or enough of them for a truncation.
  SpelledText spell(std::string_view text, Detail detail, const Truncation* stop, Workspace& workspace) const;
  std::string_view token_of(int64_t id) const;

  std::unique_ptr<const Model> model_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  AddedTokens added_;
  PostProcessor post_processor_;
  Decoder decoder_;
  LengthLimits limits_;
  bool needs_origins_ = false;                      // to cut a text
  std::unordered_map<int64_t, std::string> bytes_;  // of tokens that stand for bytes
};

}  // namespace attentive::tokenizers
