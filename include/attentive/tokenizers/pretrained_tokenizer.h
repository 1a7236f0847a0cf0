#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <attentive/text/tokenizer.h>

namespace attentive {

/// A part of a text, [begin, end). Python's offsets count characters (code points), not bytes.
struct TextSpan {
  int64_t begin = 0, end = 0;

  bool operator==(const TextSpan&) const = default;
};

/// Converts spans that count the characters of a text in UTF-8 into spans that count its bytes, in the same
/// order; `text.substr(begin, end - begin)` is then the text of a span. Throws c10::ValueError for text that
/// is not UTF-8, and for a span that does not lie in the text, with its index and the number of characters.
/// Costs O(n + spans), and 8 bytes of memory for each character of a text that is not ASCII.
///
///   const auto encoding = tokenizer.encode_text("Änderung");
///   const auto bytes = attentive::byte_spans("Änderung", encoding.offsets);
std::vector<TextSpan> byte_spans(std::string_view text, const std::vector<TextSpan>& spans);

/// The encoding of a text or of a pair of texts. Each member has one value for each token; the names are
/// Python's.
struct Encoding {
  std::vector<int64_t> ids;
  /// The segment of each token, which BERT calls the token type.
  std::vector<int64_t> type_ids;
  /// The characters of the text that each token comes from; for a pair, they count in the token's own text.
  /// {0, 0} for tokens that the post-processor or padding added. `byte_spans` turns them into bytes. Empty if
  /// offsets were not asked for.
  std::vector<TextSpan> offsets;
  /// 0 for padding, 1 for all others.
  std::vector<int64_t> attention_mask;
  /// 1 for padding and for tokens that the post-processor added, such as [CLS]; 0 for the tokens of the text.
  std::vector<int64_t> special_tokens_mask;

  bool operator==(const Encoding&) const = default;
};

/// How `PretrainedTokenizer::from_vocab` reads a `vocab.txt`: the arguments of Python's BertTokenizer.
struct VocabOptions {
  bool lower_case = true;
  /// Whether accents are removed. If not set, they are removed exactly when letters are made lower case.
  std::optional<bool> strip_accents = std::nullopt;
  bool chinese_characters = true;  ///< whether each Chinese character becomes a word
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
  /// Whether to compute the offsets of tokens, which costs additional time and memory.
  bool offsets = true;
};

/// How a batch is encoded.
struct BatchOptions {
  bool add_special_tokens = true;
  bool offsets = true;
  /// The number of threads that work at once, including the caller's; 0: as many as LibTorch's operations use
  /// (at::get_num_threads). The result does not depend on it.
  int64_t threads = 0;
};

/// The side of a text on which tokens are removed or padding is added.
enum class TextSide { Left, Right };

/// Selects the text of a pair that is shortened: the longer one until both are equally long, or always the
/// first or the second one.
enum class TruncationStrategy { LongestFirst, OnlyFirst, OnlySecond };

/// The largest number of tokens of an encoding: Python's `enable_truncation`. Tokens that are cut off are
/// dropped: Python's `stride` and its list of overflowing encodings have no counterpart.
struct TruncationOptions {
  /// The largest number of tokens, including the special tokens, for which there must be room.
  int64_t max_length = 512;
  TruncationStrategy strategy = TruncationStrategy::LongestFirst;
  /// The side on which tokens are removed.
  TextSide side = TextSide::Right;
};

/// The smallest number of tokens of an encoding: Python's `enable_padding`.
struct PaddingOptions {
  /// The length to pad to. If not set, it is the length of the longest encoding of the batch.
  std::optional<int64_t> length;
  /// The length is rounded up to a multiple of this number.
  int64_t multiple_of = 1;
  /// The side on which padding is added.
  TextSide side = TextSide::Right;
  int64_t id = 0;
  int64_t type_id = 0;
  /// The text of the padding token in the file that `to_json` writes; no encoding depends on it.
  std::string token = "[PAD]";
};

/// The tokenizer of a Python model, read from its folder's `tokenizer.json` (Hugging Face's format) or from
/// the vocabulary files of a folder without one, SentencePiece models included. These models load: byte-level
/// BPE as in GPT-2, RoBERTa, Llama 3 and Qwen; BPE with byte fallback as in Llama 2, Mistral and Gemma;
/// Unigram as in T5, ALBERT, XLM-R and CamemBERT; WordPiece as in BERT; and WordLevel.
///
/// Ids equal those of Python's `tokenizers`. These parts are supported, and a Sequence of any of them.
/// Normalizers: NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, BertNormalizer, Precompiled, Prepend,
/// Replace, Nmt, ByteLevel. Pre-tokenizers: ByteLevel, Split, Digits, Whitespace, WhitespaceSplit,
/// Punctuation, BertPreTokenizer, Metaspace, CharDelimiterSplit, FixedLength. Post-processors: ByteLevel,
/// TemplateProcessing, BertProcessing, RobertaProcessing. Decoders: ByteLevel, WordPiece, BPEDecoder,
/// Metaspace, Replace, ByteFallback, Strip, Fuse. A file with any other part is refused with the part's name.
/// Truncation and padding that a file states are applied, as in Python. A file cannot make a short text
/// endless: its steps together may make 256 bytes for each byte of a text, and a megabyte more; its decoders
/// 4,096 bytes of one; and its templates hold at most 1,024 pieces and 65,536 added tokens.
///
/// Categories and normal forms of characters are those of PCRE2 and utf8proc, whereas Python's come from
/// Unicode 8 to 17. Text with characters that Unicode 9 or a later version added, or with one of eight older
/// characters, may therefore be split differently (docs/decisions/0011-tokenizers.md).
///
/// Text must be UTF-8. `decode(encode(text)) == text` holds for byte-level BPE without a normalizer, a prefix
/// space or added tokens that strip; WordPiece and normalizers lose letter case, accents or white space.
/// Encoding a text of n bytes costs O(n log n), or O(n L) for Unigram, where L <= 1,024 is the number of
/// bytes of the longest piece. Objects are immutable: threads may share one, and copies share memory.
/// Memory: O(vocabulary), and the text of the file.
/// Source: https://huggingface.co/docs/tokenizers
///
///   auto tokenizer = attentive::PretrainedTokenizer::load("gpt2/tokenizer.json");
///   auto ids = tokenizer.encode("Hello world");
class PretrainedTokenizer final : public Tokenizer {
 public:
  /// Reads the text of a `tokenizer.json`. Throws c10::ValueError that names the place in the file, such as
  /// `pre_tokenizer.pretokenizers[1].type`, the expected value and the actual one.
  static PretrainedTokenizer parse(std::string_view json);
  /// Reads a `tokenizer.json` file as it is, or a folder as AutoTokenizer of transformers 5.24.0 reads it, by
  /// the class that its configuration names. TokenizersBackend (PreTrainedTokenizerFast) takes the folder's
  /// `tokenizer.json`; BertTokenizer, GPT2Tokenizer, RobertaTokenizer, Qwen2Tokenizer, LlamaTokenizer,
  /// GemmaTokenizer, T5Tokenizer, AlbertTokenizer, XLMRobertaTokenizer and CamembertTokenizer take its
  /// vocabulary, merges, charsmap and added tokens, some its post-processor, and make the rest from
  /// tokenizer_config.json, special_tokens_map.json, added_tokens.json and their defaults. The file's
  /// truncation and padding are left out, as Python applies those of a call. Without a `tokenizer.json` the
  /// class reads `vocab.txt`, `vocab.json` and `merges.txt`, or a SentencePiece model
  /// (docs/decisions/0013-published-folders.md). `to_json` then returns the document that the class makes,
  /// which AutoTokenizer reads with equal ids. Throws c10::ValueError with the path and the reason; for
  /// another class, for a file that the class does not read, and for a model type that `load_pretrained` does
  /// not read (`gemma` and `t5` excepted) without TokenizersBackend, the error says to name the
  /// `tokenizer.json` itself, or quotes the line of Python that writes one. Memory while reading: a few times
  /// the size of the files.
  static PretrainedTokenizer load(const std::filesystem::path& path);
  /// Reads a `vocab.txt` with one token per line, as Python's BertTokenizer does, without regard to the model
  /// that it belongs to. Throws c10::ValueError with the path and the reason.
  ///
  ///   auto tokenizer = attentive::PretrainedTokenizer::from_vocab("vocab.txt", {.lower_case = false});
  static PretrainedTokenizer from_vocab(const std::filesystem::path& path, const VocabOptions& options = {});

  /// The largest id + 1, added tokens included. Smaller ids without a token may exist.
  int64_t vocab_size() const override;
  /// Python's `encode(text, add_special_tokens=False).ids`. Throws c10::ValueError for text that is not
  /// UTF-8, with the offset of the first bad byte, and for text that Python refuses.
  std::vector<int64_t> encode(std::string_view text) const override;
  /// Encodes as `encode` does, but without the file's truncation and padding.
  std::vector<int64_t> encode_whole(std::string_view text) const override;
  /// Python's `encode(text).ids`, which includes the tokens that the post-processor adds, such as [CLS] and
  /// [SEP].
  std::vector<int64_t> encode_with_special_tokens(std::string_view text) const override;

  /// Python's `encode(text)`: ids together with offsets, types and masks. Throws as `encode` does, and, if
  /// offsets are wanted, for a text of 4 GiB or more. Memory besides the result, while it is encoded: 12
  /// bytes for each byte of the text, and 8 for each byte of every intermediate text that a normalizer or
  /// ByteLevel makes of it.
  ///
  ///   const auto encoding = tokenizer.encode_text("Hello world");
  ///   encoding.offsets[1];  // {5, 11}: " world" in GPT-2
  Encoding encode_text(std::string_view text, const EncodeOptions& options = {}) const;
  /// Python's `encode(first, second)`.
  Encoding encode_pair(std::string_view first, std::string_view second,
                       const EncodeOptions& options = {}) const;
  /// Python's `encode_batch`: the result of `encode_text` for each text, in order. Padding without a length
  /// pads to the longest encoding of the batch. Throws the error of the first text that has one, as
  /// `texts[17]: ...`, and c10::ValueError for a negative number of threads.
  ///
  ///   const auto padded = tokenizer.with_padding(attentive::PaddingOptions{});
  ///   const auto batch = padded.encode_batch({"short", "a longer one"});
  std::vector<Encoding> encode_batch(const std::vector<std::string>& texts,
                                     const BatchOptions& options = {}) const;
  /// Encodes a batch of pairs of texts as `encode_batch` encodes texts.
  std::vector<Encoding> encode_pair_batch(const std::vector<std::pair<std::string, std::string>>& pairs,
                                          const BatchOptions& options = {}) const;

  /// Returns a tokenizer that shares this one's memory and has this truncation in place of the file's, or
  /// none for std::nullopt. Throws c10::ValueError that names the option if there is no room for the special
  /// tokens, or if the side or the strategy is not one of the enumeration's values.
  ///
  ///   const auto limited = tokenizer.with_truncation(attentive::TruncationOptions{.max_length = 128});
  PretrainedTokenizer with_truncation(const std::optional<TruncationOptions>& options) const;
  /// Returns a tokenizer that has this padding in place of the file's, or none for std::nullopt. Throws
  /// c10::ValueError that names the option for a length above 2^24, a multiple that is not from 1 to 2^24, or
  /// a negative id or type.
  PretrainedTokenizer with_padding(const std::optional<PaddingOptions>& options) const;

  /// The bytes that a token of byte-level BPE stands for; for other models the token as the vocabulary writes
  /// it, such as "##ing", and for an added token its content. Throws c10::ValueError for an id without a
  /// token.
  std::string_view bytes(int64_t id) const override;
  /// Python's `decode(ids, skip_special_tokens=False)`, in which bytes that are not UTF-8 become U+FFFD.
  /// Throws c10::ValueError for an id without a token, whereas Python leaves it out.
  std::string decode(std::span<const int64_t> ids) const override;
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens) const;
  /// Decodes ids that arrive one at a time to the text that `decode` returns for all of them. The decoder
  /// shares the tokenizer's memory and may outlive it.
  std::unique_ptr<StreamingDecoder> streaming_decoder(bool skip_special_tokens) const override;

  /// The id of a token as the file writes it, added tokens included.
  std::optional<int64_t> token_to_id(std::string_view token) const;
  /// True for an added token that is marked special, such as [CLS].
  bool is_special(int64_t id) const override;

  /// The text that the tokenizer was read from, unchanged, or the document that a folder's class makes;
  /// with the truncation and the padding of `with_truncation` and `with_padding` if they were called. Unlike
  /// that of other tokenizers, the text may hold any UTF-8; `load_any_tokenizer` reads it.
  std::string to_json() const override;
  /// Returns `to_json()`, which is in Python's format already.
  std::string to_python_json() const override { return to_json(); }

 private:
  struct Parts;
  struct Limits;
  PretrainedTokenizer(std::shared_ptr<const Parts> parts, std::shared_ptr<const Limits> limits);

  Encoding encode_texts(std::span<const std::string_view> texts, const EncodeOptions& options) const;

  std::shared_ptr<const Parts> parts_;
  std::shared_ptr<const Limits> limits_;
};

/// Reads the text of a tokenizer of either format, Hugging Face's or that of `save_tokenizer`; its content
/// tells which. Throws c10::ValueError with the reason.
///
///   const attentive::LanguageModelOptions options{.read_tokenizer = attentive::parse_any_tokenizer};
///   auto language = attentive::load_language_model("run", options);
std::unique_ptr<Tokenizer> parse_any_tokenizer(std::string_view json);

/// Reads a tokenizer of either format from a file, or from a folder as `PretrainedTokenizer::load` does.
/// Throws c10::ValueError with the path and the reason.
///
///   auto tokenizer = attentive::load_any_tokenizer("Qwen3-0.6B");
std::unique_ptr<Tokenizer> load_any_tokenizer(const std::filesystem::path& path);

}  // namespace attentive
