#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <attentive/text/tokenizer.h>

namespace attentive {

class MappedFile;

/// Thrown for a token file that is damaged, missing or could not be written, and for a text that cannot be
/// tokenized. The message reads `<function>: <path>: <reason>`.
class TokenFileError : public c10::ValueError {
 public:
  using c10::ValueError::ValueError;
};

struct TokenFileOptions {
  double training_share = 0.9;            ///< as in `tokenize`
  size_t piece_bytes = size_t{16} << 20;  ///< bytes of text in memory at a time; at least 4
  /// Called after each piece that was read. An exception that it throws ends the call; no file changes.
  std::function<void()> on_piece = {};
};

/// The header of a token file: what it was made from.
struct TokenFileInfo {
  int64_t training = 0;    ///< tokens for training
  int64_t validation = 0;  ///< tokens for validation, which follow
  uint64_t text_bytes = 0;
  std::string text_sha256 = {};       ///< 64 hexadecimal digits
  std::string tokenizer_sha256 = {};  ///< of `Tokenizer::to_json`
  int64_t vocab_size = 0;             ///< all ids are below
  double training_share = 0;
  uint64_t piece_bytes = 0;
};

/// Tokenizes a text of any length into a file, which `map_token_file` opens: the tokens for training, then
/// those for validation.
///
/// A text of at most `piece_bytes` is encoded at once: its ids are those of `tokenize`. A longer one is cut
/// into pieces that are encoded one by one (`Tokenizer::encode_whole`). A piece ends after the last line end
/// in it that no white space follows; without one, before the last single space; without one, after the last
/// whole character. At the border of two pieces, ids may differ from those of the whole text encoded at once.
/// They never do for a CharTokenizer, nor for a BpeTokenizer if each piece holds a line end or a single space
/// as above.
///
/// The file appears complete or not at all; one that exists is replaced. It consists of a header of 4,096
/// bytes and the ids as little-endian int32, which `numpy.memmap(file, "<i4", "r", 4096)` reads.
///
/// Throws TokenFileError if the text cannot be read, is empty or cannot be encoded (the message names the
/// bytes of the piece), if the tokenizer returns an id outside its vocabulary, and if the file cannot be
/// written; c10::ValueError for invalid options.
/// Memory: one piece and its ids as int64.
///
///   attentive::write_token_file("tokens.bin", "text.txt", tokenizer);
///   auto [training, validation, info] = attentive::map_token_file("tokens.bin");
void write_token_file(const std::filesystem::path& file, const std::filesystem::path& text,
                      const Tokenizer& tokenizer, const TokenFileOptions& options = {});

/// Tokens in a mapped file.
struct MappedTokens {
  at::Tensor training;    ///< (info.training), int32, on the CPU
  at::Tensor validation;  ///< (info.validation), int32, on the CPU
  TokenFileInfo info;
};

/// Maps the file of `write_token_file`. Nothing is copied: a token is read from the disk when it is used, and
/// all processes of a machine that map the file share the memory that holds it. The mapping lasts as long as
/// one of the tensors. Numbers written to a tensor stay in the process; the file does not change.
///
/// The size of the file and every byte of the header are checked; the ids are not read. The file must not
/// become shorter while it is mapped: the system ends a process that uses bytes which are gone (SIGBUS).
/// Replacing it by a rename, as `write_token_file` does, is safe.
/// Throws TokenFileError for a file that is damaged, or is none of this kind.
MappedTokens map_token_file(const std::filesystem::path& file);

/// Reads the header of a token file. Throws the errors of `map_token_file`.
TokenFileInfo read_token_file_info(const std::filesystem::path& file);

/// Why a token file does not hold the tokens of a text, with this tokenizer and training share; nullopt: it
/// does. Sizes are compared first; the text is read only if all else fits, for its SHA-256. Of the options,
/// `piece_bytes` says only how much of the text is read at a time; the file may have other pieces.
/// Throws TokenFileError if the file is damaged, or if one of both cannot be read.
/// Memory: one piece.
std::optional<std::string> token_file_mismatch(const std::filesystem::path& file,
                                               const std::filesystem::path& text, const Tokenizer& tokenizer,
                                               const TokenFileOptions& options = {});

/// A text file as memory. The system reads a part of it when it is used and may drop it again, and processes
/// share it; so a tokenizer can be learned from a text that is larger than the memory.
///
///   attentive::MappedText text("text.txt");
///   auto tokenizer = attentive::BpeTokenizer::train(text.view(), 32000);
class MappedText {
 public:
  /// Throws c10::ValueError with the path and the reason if the file cannot be mapped or is empty. The file
  /// must not become shorter during the lifetime of this object, as with `map_token_file`.
  explicit MappedText(const std::filesystem::path& path);
  ~MappedText();
  MappedText(const MappedText&) = delete;
  MappedText& operator=(const MappedText&) = delete;

  /// All bytes of the file.
  std::string_view view() const { return text_; }

 private:
  std::unique_ptr<MappedFile> mapping_;
  std::string_view text_;
};

}  // namespace attentive
