#include "viz/page_data.h"

#include <algorithm>

#include "viz/head_rows.h"

namespace attentive::viz {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kTop = 8, kThumb = 32;

ordered_json number_or_null(const std::optional<double>& number) {
  return number ? ordered_json(*number) : ordered_json();
}

void add_statistics(const HeadRows& rows, int64_t key_origin, ordered_json& json) {
  const auto statistics = statistics_of(rows, key_origin);
  json["entropy"] = number_or_null(statistics.entropy);
  json["entropy_share"] = number_or_null(statistics.entropy_share);
  json["distance"] = number_or_null(statistics.distance);
  json["previous"] = number_or_null(statistics.previous);
  json["first"] = number_or_null(statistics.first);
  json["sink"] = number_or_null(statistics.sink);
}

void add_thumbnail(const HeadRows& rows, const std::vector<Span>& spans, const std::vector<float>& maxima,
                   ordered_json& json) {
  const auto height = std::min(kThumb, rows.queries), width = std::min(kThumb, rows.keys);
  json["thumb"] = base64(thumbnail(rows, spans, maxima, height, width));
  json["thumb_size"] = height;
  json["thumb_columns"] = width;
}

ordered_json neurons_json(const std::vector<HeadNeurons>& neurons) {
  if (neurons.empty()) return {};
  auto list = ordered_json::array();
  for (const auto& one : neurons)
    list.push_back(
        {{"head", one.head}, {"q", base64_of(one.q)}, {"k", base64_of(one.k)}, {"scale", one.scale}});
  return list;
}

}  // namespace

PageData::PageData(const std::vector<AttentionView>& views, const std::string& title, const std::string& note)
    : views_(views) {
  page_["version"] = 2;
  page_["title"] = title;
  if (!note.empty()) page_["note"] = note;
  page_["tokens"] = ordered_json::array();
  page_["hidden"] = ordered_json::array();
  page_["levels"] = 0;  // set by `json`
  auto list = ordered_json::array();
  for (const auto& view : views_) {
    shapes_.emplace_back();
    list.push_back(view_json(view));
  }
  page_["views"] = std::move(list);
}

std::string PageData::json(int levels) const {
  auto page = page_;
  page["levels"] = levels;
  const auto text = page.dump(-1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";  // `<` occurs in strings only
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string PageData::weights(size_t view, size_t place, int levels) const {
  const HeadMemory head(views_[view], static_cast<int64_t>(place));
  const auto& [spans, maxima, top] = shapes_[view][place];
  const auto steps = quantised(head.rows, spans, maxima, levels);
  std::vector<std::vector<uint8_t>> parts{steps, byte_planes(maxima)};
  if (views_[view].logsumexp.defined()) {
    const auto logsumexp = views_[view].logsumexp.select(0, static_cast<int64_t>(place)).contiguous();
    parts.push_back(byte_planes({logsumexp.const_data_ptr<float>(), static_cast<size_t>(logsumexp.numel())}));
  }
  parts.push_back(top_places(head.rows, spans, steps, top));
  return base91(deflated(parts));
}

size_t PageData::heads() const {
  size_t count = 0;
  for (const auto& view : views_) count += view.heads.size();
  return count;
}

ordered_json PageData::view_json(const AttentionView& view) {
  ordered_json json;
  json["path"] = view.path;
  json["linear"] = view.linear;
  json["batch"] = view.batch;
  json["queries"] = view.weights.size(1);
  json["keys"] = view.weights.size(2);
  json["query_tokens"] = tokens_index(view.query_tokens);
  json["key_tokens"] = tokens_index(view.key_tokens);
  json["key_origin"] = view.key_origin;
  json["image"] = view.image ? image_json(*view.image) : ordered_json();
  json["rollout"] = view.rollout.defined() ? ordered_json(base64_of(view.rollout)) : ordered_json();
  auto heads = ordered_json::array();
  for (size_t place = 0; place < view.heads.size(); ++place) heads.push_back(head_json(view, place));
  json["heads"] = std::move(heads);
  json["neurons"] = neurons_json(view.neurons);
  return json;
}

ordered_json PageData::head_json(const AttentionView& view, size_t place) {
  const HeadMemory head(view, static_cast<int64_t>(place));
  const auto top_count = std::min(kTop, head.rows.keys);
  const auto& [spans, maxima, top] = shapes_.back().emplace_back(
      HeadShape{spans_of(head.rows), row_maxima(head.rows), top_keys(head.rows, top_count)});
  ordered_json json;
  json["head"] = view.heads[place];
  json["hidden"] = hidden_index(head.rows, spans);
  json["logsumexp"] = view.logsumexp.defined();
  json["top_count"] = top_count;
  add_statistics(head.rows, view.key_origin, json);
  add_thumbnail(head.rows, spans, maxima, json);
  head_bytes_ += json.dump().size() + 1;  // with a comma
  return json;
}

ordered_json PageData::image_json(const PatchImage& image) {
  ordered_json json{
      {"rows", image.rows}, {"columns", image.columns}, {"first", image.first}, {"pixels", nullptr}};
  if (!image.pixels.defined()) return json;
  // All layers usually show the same picture, which is embedded only once.
  const auto known = std::find_if(pictures_.begin(), pictures_.end(),
                                  [&](const auto& picture) { return picture.first.is_same(image.pixels); });
  if (known != pictures_.end()) {
    json["pixels"] = known->second;
    return json;
  }
  pictures_.emplace_back(image.pixels, shapes_.size() - 1);
  json["pixels"] = picture_uri(image.pixels);
  return json;
}

int64_t PageData::tokens_index(const std::vector<std::string>& tokens) {
  if (tokens.empty()) return -1;
  const auto [place, fresh] = token_lists_.emplace(tokens, std::ssize(page_["tokens"]));
  if (fresh) {
    auto shown = ordered_json::array();
    for (const auto& token : tokens) shown.push_back(with_lone_bytes(token));
    page_["tokens"].push_back(std::move(shown));
  }
  return place->second;
}

size_t PageData::hidden_index(const HeadRows& rows, const std::vector<Span>& spans) {
  const auto holes = holes_of(rows, spans);
  const ordered_json json{
      {"spans", base64_of(spans)},
      {"holes", holes.empty() ? ordered_json() : ordered_json(base64(deflated({holes})))}};
  const auto [place, fresh] = hidden_.emplace(json.dump(), hidden_.size());
  if (fresh) page_["hidden"].push_back(json);
  return place->second;
}

}  // namespace attentive::viz
