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
