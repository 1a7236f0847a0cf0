#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <attentive/viz/attention_view.h>

#include "viz/checked_view.h"

namespace attentive::viz {

/// What a page knows of its views, as JSON; all but the weights of each head. The views were checked and must
/// outlive it.
class PageData {
 public:
  PageData(const std::vector<AttentionView>& views, const std::string& title, const std::string& note);

  /// ASCII is not guaranteed, but that no `<` occurs: nothing in it can end a script element.
  std::string json(int levels) const;

  /// The numbers of one head at a number of levels, deflated, base 91: the quantised weights, the bytes of the
  /// rows' maxima and of logsumexp if there is one, the places of the largest weights.
  std::string weights(size_t view, size_t place, int levels) const;

  /// Of all views together.
  size_t heads() const;
  /// Bytes of the JSON that belong to heads; the rest is there once.
  size_t head_bytes() const { return head_bytes_; }

 private:
  nlohmann::ordered_json view_json(const AttentionView& view);
  nlohmann::ordered_json head_json(const AttentionView& view, size_t place);
  nlohmann::ordered_json image_json(const PatchImage& image);
  int64_t tokens_index(const std::vector<std::string>& tokens);
  size_t hidden_index(const HeadRows& rows, const std::vector<Span>& spans);

  // What the weights of a head need at any number of levels.
  struct HeadShape {
    std::vector<Span> spans;
    std::vector<float> maxima;
    std::vector<int32_t> top;
  };

  const std::vector<AttentionView>& views_;
  std::vector<std::vector<HeadShape>> shapes_;  // of the heads of each view written so far
  std::map<std::vector<std::string>, int64_t> token_lists_;
  std::map<std::string, size_t> hidden_;                 // by what was written of it
  std::vector<std::pair<at::Tensor, size_t>> pictures_;  // and the first view that shows each
  size_t head_bytes_ = 0;
  nlohmann::ordered_json page_;
};

/// The texts of src/viz/page: the template with its three markers, all style sheets, all scripts.
extern const char* const kPageTemplate;
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace attentive::viz
