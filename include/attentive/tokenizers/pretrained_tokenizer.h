#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <attentive/text/tokenizer.h>
#include <attentive/tokenizers/text_span.h>

namespace attentive {

/// What a text, or a pair, became. Each member has one value for each token; the names are Python's.
struct Encoding {
  std::vector<int64_t> ids;
  /// The segment that BERT calls the token type.
  std::vector<int64_t> type_ids;
  /// The characters of the text that a token comes from, of a pair those of its own text; {0, 0} for tokens that
  /// were added. `byte_spans` turns them into bytes. Empty if they were not asked for.
  std::vector<TextSpan> offsets;
  /// 0 for padding, 1 for all others.
  std::vector<int64_t> attention_mask;
  /// 1 for padding and for what the post-processor added, such as [CLS]; 0 for the tokens of the text.
  std::vector<int64_t> special_tokens_mask;

  bool operator==(const Encoding&) const = default;
};

/// How `PretrainedTokenizer::from_vocab` reads a `vocab.txt`: the arguments of Python's BertTokenizer.
struct VocabOptions {
  bool lower_case = true;
  /// Whether accents are removed. Not set: where letters are made lower case.
  std::optional<bool> strip_accents = std::nullopt;
  bool chinese_characters = true;  ///< each of them is a word
  std::string unknown = "[UNK]";
  std::string separator = "[SEP]";
  std::string padding = "[PAD]";
  std::string classifier = "[CLS]";
  std::string mask = "[MASK]";
};

/// How `encode_text` and `encode_pair` encode.
struct EncodeOptions {
  /// Whether to add the tokens that the post-processor adds, such as [CLS] and [SEP].
  bool add_special_tokens = true;
  /// Whether to find out where tokens come from, which costs about as much again as the ids.
  bool offsets = true;
};

/// How a batch is encoded.
struct BatchOptions {
  bool add_special_tokens = true;
  bool offsets = true;
  /// How many threads work at once, the caller's among them; 0: as many as LibTorch's operations use
  /// (at::get_num_threads). The result does not depend on it.
  int64_t threads = 0;
};

/// A side of a text, of which tokens are taken away or to which padding is added.
enum class TextSide { Left, Right };

/// Which text of a pair is shortened: the longer one, until both are equally long; or always the same one.
enum class TruncationStrategy { LongestFirst, OnlyFirst, OnlySecond };

/// How many tokens an encoding has at most: Python's `enable_truncation`. What is cut off is dropped: Python's
/// `stride` and the overflowing parts that it gives have no counterpart.
struct TruncationOptions {
  /// With the special tokens, for which there must be room.
  int64_t max_length = 512;
  TruncationStrategy strategy = TruncationStrategy::LongestFirst;
  /// Where tokens are taken away.
  TextSide side = TextSide::Right;
};

/// How many tokens an encoding has at least: Python's `enable_padding`.
struct PaddingOptions {
  /// None: as many as the longest of a batch.
  std::optional<int64_t> length;
  /// The length is made a multiple of this one.
  int64_t multiple_of = 1;
  /// Where padding is added.
  TextSide side = TextSide::Right;
  int64_t id = 0;
  int64_t type_id = 0;
  /// How the file that `to_json` writes names the token; no encoding depends on it.
  std::string token = "[PAD]";
};

/// The tokenizer of a Python model, from its folder's `tokenizer.json` (Hugging Face's format): byte-level
/// BPE as in GPT-2, RoBERTa, Llama 3 and Qwen, BPE with byte fallback as in Llama 2, Mistral and Gemma, Unigram
/// as in T5, ALBERT, XLM-R and CamemBERT, WordPiece as in BERT, and WordLevel.
///
/// Ids equal those of Python's `tokenizers`. Normalizers: NFC, NFD, NFKC, NFKD, Lowercase, StripAccents,
/// Strip, BertNormalizer, Precompiled, Prepend, Replace, Nmt, ByteLevel. Pre-tokenizers: ByteLevel, Split,
/// Digits, Whitespace, WhitespaceSplit, Punctuation, BertPreTokenizer, Metaspace, CharDelimiterSplit,
/// FixedLength. Post-processors: ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing. Decoders:
/// ByteLevel, WordPiece, BPEDecoder, Metaspace, Replace, ByteFallback, Strip, Fuse. A Sequence of any of them.
/// Whatever else a file asks for is refused by name. Truncation and padding that a file holds are applied, as
/// Python applies them.
///
/// Categories and forms of characters are those of PCRE2 and utf8proc, Python's are of Unicode 8 to 17:
/// characters that Unicode 9 or a later version added, and eight older ones, may be cut differently
/// (docs/decisions/0011-tokenizers.md).
///
/// Text must be UTF-8. `decode(encode(text)) == text` holds for byte-level BPE without a normalizer, a prefix
/// space or added tokens that strip; WordPiece and normalizers forget letter case, accents or white space.
/// Encoding a text of n bytes costs O(n log n), and with Unigram O(n L), where L are the bytes of the longest
/// piece, at most 1,024. Objects are immutable: threads may share one; copies share
/// memory.
/// Memory: O(vocabulary), and the text of the file.
/// Source: https://huggingface.co/docs/tokenizers
///
///   auto tokenizer = attentive::PretrainedTokenizer::load("gpt2/tokenizer.json");
///   auto ids = tokenizer.encode("Hello world");
class PretrainedTokenizer final : public Tokenizer {
 public:
  /// Reads the text of a `tokenizer.json`. Throws c10::ValueError that names the place in the file, such as
  /// `pre_tokenizer.pretokenizers[1].type`, what was expected and what came.
  static PretrainedTokenizer parse(std::string_view json);
  /// Reads a `tokenizer.json`, or the one in a folder. A folder without one is read as AutoTokenizer of
  /// transformers 5.23.0 reads it, by the class that its configuration names: `vocab.txt` (BertTokenizer),
  /// `vocab.json` with `merges.txt` (GPT2Tokenizer, RobertaTokenizer, Qwen2Tokenizer), or a SentencePiece model
  /// (LlamaTokenizer, GemmaTokenizer, T5Tokenizer, AlbertTokenizer, XLMRobertaTokenizer, CamembertTokenizer, and
  /// TokenizersBackend, which Mistral has), each with tokenizer_config.json, special_tokens_map.json and
  /// added_tokens.json where they are there (docs/decisions/0013-published-folders.md). `to_json` is then the
  /// document that was made of them, which AutoTokenizer reads with equal ids.
  /// Throws c10::ValueError with the path and what is wrong; for another class it names the line of Python that
  /// writes a `tokenizer.json`. Memory: a few times the files while it reads.
  static PretrainedTokenizer load(const std::filesystem::path& path);
  /// Reads a `vocab.txt`, a token a line, as Python's BertTokenizer does, whatever model it is of. Throws
  /// c10::ValueError with the path and what is wrong.
  ///
  ///   auto tokenizer = attentive::PretrainedTokenizer::from_vocab("vocab.txt", {.lower_case = false});
  static PretrainedTokenizer from_vocab(const std::filesystem::path& path, const VocabOptions& options = {});

  /// The largest id + 1, added tokens included. Not every id below must have a token.
  int64_t vocab_size() const override;
  /// Python's `encode(text, add_special_tokens=False).ids`. Throws c10::ValueError for text that is not
  /// UTF-8, with the offset of the first bad byte, and where Python refuses the text.
  std::vector<int64_t> encode(std::string_view text) const override;
  /// The same without the file's truncation and padding.
  std::vector<int64_t> encode_whole(std::string_view text) const override;
  /// Python's `encode(text).ids`: with the tokens that the post-processor adds, such as [CLS] and [SEP].
  std::vector<int64_t> encode_with_special_tokens(std::string_view text) const override;

  /// Python's `encode(text)`: ids and all that goes with them. Errors as `encode`. A text with offsets has less than
  /// 4 GiB. Memory besides the result: 12 bytes a byte of the text while it is encoded, 8 if it is ASCII.
  ///
  ///   const auto encoding = tokenizer.encode_text("Hello world");
  ///   encoding.offsets[1];  // {5, 11}: " world" in GPT-2
  Encoding encode_text(std::string_view text, const EncodeOptions& options = {}) const;
  /// Python's `encode(first, second)`.
  Encoding encode_pair(std::string_view first, std::string_view second,
                       const EncodeOptions& options = {}) const;
  /// Python's `encode_batch`: what `encode_text` gives for each text, in order. Padding without a length is up to the
  /// longest of them. Throws the error of the first text that has one, as `texts[17]: ...`; and for a number of
  /// threads below 0.
  ///
  ///   const auto batch = tokenizer.with_padding(attentive::PaddingOptions{}).encode_batch({"short", "a longer one"});
  std::vector<Encoding> encode_batch(const std::vector<std::string>& texts,
                                     const BatchOptions& options = {}) const;
  /// The same for pairs of texts.
  std::vector<Encoding> encode_pair_batch(const std::vector<std::pair<std::string, std::string>>& pairs,
                                          const BatchOptions& options = {}) const;

  /// A tokenizer of the same parts, which share memory, with this truncation in place of the file's; none: without
  /// one. Throws c10::ValueError that names the option if there is no room for the special tokens, or no such side
  /// or strategy.
  ///
  ///   const auto limited = tokenizer.with_truncation(attentive::TruncationOptions{.max_length = 128});
  PretrainedTokenizer with_truncation(const std::optional<TruncationOptions>& options) const;
  /// The same for padding. Throws c10::ValueError that names the option for a length above 2^24, a multiple that is
  /// not from 1 to 2^24, or an id or type below 0.
  PretrainedTokenizer with_padding(const std::optional<PaddingOptions>& options) const;

  /// The bytes that a token of byte-level BPE stands for; otherwise the token as the vocabulary writes it,
  /// such as "##ing". Of an added token its content. Throws c10::ValueError for an id without a token.
  std::string_view bytes(int64_t id) const override;
  /// Python's `decode(ids, skip_special_tokens=False)`: text, where bytes that are not UTF-8 became U+FFFD.
  /// Throws c10::ValueError for an id without a token, which Python leaves out.
  std::string decode(std::span<const int64_t> ids) const override;
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens) const;
  /// The same text for ids that come one at a time. The decoder shares the tokenizer's memory and may outlive
  /// it.
  std::unique_ptr<StreamingDecoder> streaming_decoder(bool skip_special_tokens) const override;

  /// The id of a token as the file writes it, added ones included.
  std::optional<int64_t> token_to_id(std::string_view token) const;
  /// True for an added token that is marked special, such as [CLS].
  bool is_special(int64_t id) const override;

  /// The text it was read from, unchanged, or what was made of a folder's other files; with the truncation and the
  /// padding of `with_truncation` and `with_padding` if there are any. Unlike that of other tokenizers it may hold any UTF-8, and
  /// `load_any_tokenizer` reads it.
  std::string to_json() const override;
  /// The same text.
  std::string to_python_json() const override { return to_json(); }

 private:
  struct Parts;
  struct Limits;
  PretrainedTokenizer(std::shared_ptr<const Parts> parts, std::shared_ptr<const Limits> limits);

  Encoding encode_texts(std::span<const std::string_view> texts, const EncodeOptions& options) const;

  std::shared_ptr<const Parts> parts_;
  std::shared_ptr<const Limits> limits_;
};

/// Reads the text of a tokenizer of either format: Hugging Face's, or that of `save_tokenizer`; told apart by
/// content. Throws c10::ValueError with what is wrong.
///
///   auto language = attentive::load_language_model("run", {.read_tokenizer = attentive::parse_any_tokenizer});
std::unique_ptr<Tokenizer> parse_any_tokenizer(std::string_view json);

/// Reads it from a file, or from a folder as `PretrainedTokenizer::load` does. Throws c10::ValueError with the
/// path and what is wrong.
///
///   auto tokenizer = attentive::load_any_tokenizer("Qwen3-0.6B");
std::unique_ptr<Tokenizer> load_any_tokenizer(const std::filesystem::path& path);

}  // namespace attentive
