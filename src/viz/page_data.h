#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <attentive/viz/attention_view.h>

#include "viz/head_rows.h"

namespace attentive::viz {

/// Encodes bytes in base 64 (RFC 4648), with padding.
std::string base64(std::span<const uint8_t> bytes);

/// Encodes the bytes of numbers as they are in memory, which is little-endian on every machine that this
/// package supports.
template <class Number>
std::string base64_of(const std::vector<Number>& numbers) {
  return base64({reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size() * sizeof(Number)});
}
/// Encodes the bytes of a float32 tensor.
std::string base64_of(const at::Tensor& tensor);

/// Encodes 13 bits in two characters, the lower digit in base 91 first, beginning with the lowest bit; a rest
/// of at most 6 bits is one character. The characters are printable ASCII from `!` to `|` without `<`, which
/// in an element's text is 8 % shorter than base64.
std::string base91(std::span<const uint8_t> bytes);

/// Compresses bytes to raw DEFLATE (RFC 1951), which `DecompressionStream('deflate-raw')` reads. The parts
/// are concatenated in one stream, but each has its own blocks, because their statistics differ.
std::vector<uint8_t> deflated(const std::vector<std::vector<uint8_t>>& parts);

/// Replaces every byte of a token that is not part of a UTF-8 character by text such as ‹F0›: a character may
/// be split into several tokens.
std::string with_lone_bytes(std::string_view token);

/// Encodes pixels (1 or 3, H, W) from 0 to 1 as a picture that a browser shows: a 24-bit BMP as a data URI.
std::string picture_uri(const at::Tensor& pixels);

/// The data of a page as JSON, except for the weights of each head. The views must have been checked and must
/// outlive this object.
class PageData {
 public:
  PageData(const std::vector<AttentionView>& views, const std::string& title, const std::string& note);

  /// May contain non-ASCII characters, but no `<`, so that nothing in it can end a script element.
  std::string json(int levels) const;

  /// The weights of one head at a number of levels, deflated and in base 91: the quantised weights, the bytes
  /// of the rows' maxima and, if present, of logsumexp, and the indices from `top_places`.
  std::string weights(size_t view, size_t place, int levels) const;

  /// The number of heads in all views together.
  size_t heads() const;
  /// The bytes of the JSON that belong to single heads; the rest occurs once.
  size_t head_bytes() const { return head_bytes_; }

 private:
  nlohmann::ordered_json view_json(const AttentionView& view);
  nlohmann::ordered_json head_json(const AttentionView& view, size_t place);
  nlohmann::ordered_json image_json(const PatchImage& image);
  int64_t tokens_index(const std::vector<std::string>& tokens);
  size_t hidden_index(const HeadRows& rows, const std::vector<Span>& spans);

  /// The data of a head's weights that do not depend on the number of levels.
  struct HeadShape {
    std::vector<Span> spans;
    std::vector<float> maxima;
    std::vector<int32_t> top;
  };

  const std::vector<AttentionView>& views_;
  std::vector<std::vector<HeadShape>> shapes_;  // by view and place, as far as written
  std::map<std::vector<std::string>, int64_t> token_lists_;
  std::map<std::string, size_t> hidden_;                 // by the JSON text of the mask
  std::vector<std::pair<at::Tensor, size_t>> pictures_;  // with the first view that shows each picture
  size_t head_bytes_ = 0;
  nlohmann::ordered_json page_;
};

/// The texts of src/viz/page: the template with its three markers, all style sheets, all scripts.
extern const char* const kPageTemplate;
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace attentive::viz
