#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <nlohmann/json.hpp>

#include <attentive/functional/attention.h>
#include <attentive/functional/attention_recorder.h>
#include <attentive/viz/write_page.h>

namespace attentive::test {

std::vector<uint8_t> decoded_base64(std::string_view text);
/// Decodes 13 bits from two characters; written independently of `viz::base91`.
std::vector<uint8_t> decoded_base91(std::string_view text);
std::vector<uint8_t> inflated(const std::vector<uint8_t>& bytes);

/// Decodes base64 to numbers of a type.
template <class Number>
std::vector<Number> numbers_of(const std::string& text) {
  const auto bytes = decoded_base64(text);
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(numbers.data()));
  return numbers;
}

/// A page of `write_html`, read in the way its scripts read it: elements by id, JSON, base64, raw DEFLATE by
/// zlib.
class Page {
 public:
  explicit Page(const std::filesystem::path& path);

  /// The text between the tags of the element with this id. Throws std::runtime_error unless there is exactly
  /// one such element.
  std::string element(const std::string& id) const;
  const nlohmann::json& head(size_t view, size_t place) const;

  /// The quantised weights of a head, in steps and multiplied out: (L, S), float64, 0 if hidden.
  std::vector<uint8_t> bytes(size_t view, size_t place) const;
  std::vector<float> row_maxima(size_t view, size_t place) const;
  std::vector<float> logsumexp(size_t view, size_t place) const;  ///< empty: none
  /// For each row, the keys with the largest weights, the largest first.
  std::vector<std::vector<int32_t>> top(size_t view, size_t place) const;
  at::Tensor weights(size_t view, size_t place) const;
  at::Tensor visible(size_t view, size_t place) const;  ///< bool (L, S)

  std::string text;
  nlohmann::json data;

 private:
  struct Parts {
    std::vector<uint8_t> steps, maxima, logsumexp, places;
  };
  Parts parts(size_t view, size_t place) const;
};

// Writes pages and compares them with their views.

// Writes a page and reads it back.
Page page_of(const std::vector<AttentionView>& views, const HtmlOptions& options = {});

// Checks that every weight is within half a step, that hidden keys are hidden, and that the other numbers are
// exact.
void check_head(const Page& page, const AttentionView& view, size_t number, size_t place);

// Recorded calls for the tests.

// Records one call of `attention`.
inline RecordedAttention recorded(const at::Tensor& q, const at::Tensor& k,
                                  const AttentionOptions& options = {}, const Mask& mask = {}) {
  AttentionRecorder recorder;
  attention(q, k, k, options, mask);
  return recorder.calls().at(0);
}

// The same of tensors that are drawn for it, first q, then k.
inline RecordedAttention recorded(at::IntArrayRef q_shape, at::IntArrayRef k_shape,
                                  const AttentionOptions& options = {}, const Mask& mask = {}) {
  const auto q = at::randn(q_shape), k = at::randn(k_shape);
  return recorded(q, k, options, mask);
}

}  // namespace attentive::test
