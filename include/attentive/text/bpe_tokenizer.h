#pragma once

#include <unordered_map>
#include <utility>

#include <attentive/text/tokenizer.h>

namespace attentive {

/// Byte-level byte-pair encoding: tokens 0-255 are the bytes, and every further token joins two earlier ones.
///
/// Text is first split into pieces that no token crosses: runs of letters (bytes above 127 count as letters),
/// of digits, or of other characters, each with at most one space in front of it, and runs of white space. No
/// piece is longer than 1,024 bytes. Any sequence of bytes round-trips. Encoding a piece of length n costs
/// O(n log n).
/// Memory: O(vocabulary).
/// Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units"; the byte
/// level as in GPT-2.
///
///   auto tokenizer = attentive::BpeTokenizer::train(text, /*vocab_size=*/512);
///   auto ids = tokenizer.encode("To be, or not to be");
class BpeTokenizer final : public Tokenizer {
 public:
  using Merge = std::pair<int64_t, int64_t>;
  static constexpr size_t kLongestPiece = 1024;  ///< the most bytes of a piece, and so of a token

  /// Learns merges of the most frequent adjacent pairs (in a tie, the smaller pair of ids) until the
  /// vocabulary is full or no pair occurs twice. Throws c10::ValueError if the text is empty or vocab_size <
  /// 256.
  static BpeTokenizer train(std::string_view text, int64_t vocab_size);
  /// Token 256 + i joins the two tokens of merges[i]. Throws c10::ValueError for a token not yet defined, a
  /// pair that occurs twice, or a token longer than 1,024 bytes.
  explicit BpeTokenizer(std::vector<Merge> merges);

  int64_t vocab_size() const override;
  std::vector<int64_t> encode(std::string_view text) const override;
  std::string_view bytes(int64_t id) const override;
  std::string to_json() const override;
  /// A BPE model with ByteLevel characters; Python gives a text the same ids as `encode`. Throws
  /// c10::ValueError if two tokens stand for the same bytes.
  std::string to_python_json() const override;

  const std::vector<Merge>& merges() const { return merges_; }

 private:
  void encode_piece(std::string_view piece, std::vector<int64_t>& out) const;

  std::vector<Merge> merges_;
  std::vector<std::string> bytes_;
  std::unordered_map<uint64_t, int64_t> ranks_;  // pair of ids -> the token that joins them
};

}  // namespace attentive
