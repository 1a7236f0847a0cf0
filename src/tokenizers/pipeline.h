#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "tokenizers/added_tokens.h"
#include "tokenizers/decoders.h"
#include "tokenizers/json_view.h"
#include "tokenizers/models.h"
#include "tokenizers/normalizers.h"
#include "tokenizers/post_processor.h"
#include "tokenizers/pre_tokenizers.h"

namespace attentive::tokenizers {

/// The memory that a thread reuses from one text to the next.
struct Workspace {
  explicit Workspace(const Model& model) : words(model) {}

  Pieces pieces;
  WordCache words;
};

/// All parts of a `tokenizer.json`, in the order in which a text goes through them. Errors are Refusals.
class Pipeline {
 public:
  explicit Pipeline(const JsonView& document);

  /// The limits of lengths that the file states.
  const LengthLimits& limits() const { return limits_; }
  const PostProcessor& post_processor() const { return post_processor_; }

  Workspace workspace() const { return Workspace(*model_); }

  /// Encodes one text or a pair, without padding.
  Encoding encode(std::span<const std::string_view> texts, bool add_special_tokens, Detail detail,
                  const std::optional<Truncation>& truncation, Workspace& workspace) const;
  /// Returns the ids of one text without special tokens, neither truncated nor padded.
  std::vector<int64_t> encode_whole(std::string_view text) const;
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens) const;
  /// Returns the stream that decodes tokens one at a time; it is fed with the texts of `token_to_decode`.
  std::unique_ptr<DecoderStream> decoder_stream() const { return decoder_.stream(/*whole=*/false); }
  /// The text of a token for the decoder, or std::nullopt for a token that is skipped.
  std::optional<std::string_view> token_to_decode(int64_t id, bool skip_special_tokens) const;

  int64_t vocab_size() const;
  std::string_view bytes(int64_t id) const;
  std::optional<int64_t> token_to_id(std::string_view token) const;
  bool is_special(int64_t id) const;

 private:
  void cut_into_pieces(std::string_view text, bool with_origins, Pieces& pieces) const;
  /// Returns all tokens of a text, or, if `stop` is not null, at least as many as that truncation can keep.
  SpelledText spell(std::string_view text, Detail detail, const Truncation* stop, Workspace& workspace) const;
  std::string_view token_of(int64_t id) const;

  std::unique_ptr<const Model> model_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  AddedTokens added_;
  PostProcessor post_processor_;
  Decoder decoder_;
  LengthLimits limits_;
  bool needs_origins_ = false;                      // whether cutting a text needs origins
  std::unordered_map<int64_t, std::string> bytes_;  // the bytes of ByteLevel tokens, by id
};

/// Calls `work(thread, text)` for 0 <= text < count on at most `threads` threads, of which the caller's is
/// thread 0. If calls throw, rethrows the exception of the first such text, whichever thread took it; a
/// Refusal is then named `texts[17]: ...`.
void for_each_text(size_t count, size_t threads, const std::function<void(size_t thread, size_t text)>& work);

}  // namespace attentive::tokenizers
