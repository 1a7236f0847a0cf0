#include "support/report.h"

#include <algorithm>

#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#ifdef ATTENTIVE_NOTEBOOK_PICTURES
#include <attentive/viz/attention_view.h>
#include <attentive/viz/write_page.h>
#endif

namespace notebooks {
namespace {

// A map to draw: float32 on the CPU, hidden numbers replaced by 0.
struct Map {
  std::string title;
  at::Tensor values, visible;  // (L, S)
  const PictureOptions& options;
};

std::string label_of(const std::vector<std::string>& labels, int64_t place) {
  return labels.empty() ? fmt::format("{}", place) : labels.at(static_cast<size_t>(place));
}

std::string describe(const Map& map) {
  const auto rows = map.values.size(0), columns = map.values.size(1);
  const auto place = map.values.argmax().item<int64_t>();
  std::string text =
      fmt::format("{}: a map of {} by {} numbers, the largest {:.4g} in row {}, column {}", map.title, rows,
                  columns, map.values.max().item<double>(), label_of(map.options.queries, place / columns),
                  label_of(map.options.keys, place % columns));
  const auto hidden = map.visible.logical_not().sum().item<int64_t>();
  return hidden == 0 ? text : fmt::format("{}; {} are hidden", text, hidden);
}

#ifdef ATTENTIVE_NOTEBOOK_PICTURES
std::string picture_svg(const Map& map) {
  attentive::AttentionView view;
  view.path = map.title;
  view.weights = map.values.unsqueeze(0);
  view.visible = map.visible.unsqueeze(0);
  view.heads = {0};
  view.query_tokens = map.options.queries;
  view.key_tokens = map.options.keys;
  return attentive::to_svg(view, {.title = map.title});
}
#else
std::string picture_svg(const Map& /*map*/) {
  return {};
}
#endif

}  // namespace

bool pictures_available() {
#ifdef ATTENTIVE_NOTEBOOK_PICTURES
  return true;
#else
  return false;
#endif
}

std::vector<Drawing> draw(const Picture& picture) {
  if (!pictures_available()) return {};
  const auto dims = picture.values.dim();
  TORCH_CHECK_VALUE(dims >= 1 && dims <= 3, picture.name,
                    ": expected numbers of shape (S), (L, S) or (H, L, S), got ", picture.values.sizes());
  const auto& asked = picture.options.visible;
  const auto shape = picture.values.sizes();
  const auto visible = asked.defined() ? asked.cpu().expand(shape) : at::ones(shape, at::kBool);
  const auto values = picture.values.detach().to(at::kCPU, at::kFloat).masked_fill(visible.logical_not(), 0);
  const auto last = shape.back(), rows = dims == 1 ? 1 : shape[shape.size() - 2];
  const auto heads = values.reshape({-1, rows, last}), seen = visible.reshape({-1, rows, last});

  std::vector<Drawing> drawings;
  for (int64_t head = 0; head < heads.size(0); ++head) {
    const auto title =
        dims < 3 ? picture.name : fmt::format("{}, {} {}", picture.name, picture.options.each, head);
    const Map map{title, heads[head], seen[head], picture.options};
    drawings.push_back({picture_svg(map), describe(map)});
  }
  return drawings;
}

std::vector<std::string> tally_heads() {
  return {"document", "rows", "compared", "differ", "shown", "nearest to what it is allowed"};
}

std::vector<std::string> columns_of(const Tally& tally) {
  const auto count = [](int number) { return fmt::format("{}", number); };
  return {
      tally.document,
      count(tally.cells),
      count(tally.compared),
      count(tally.differing),
      count(tally.only_shown),
      tally.closest_at.empty() ? "-" : fmt::format("{:.0f} %, {}", 100 * tally.closest, tally.closest_at)};
}

std::vector<std::string> remarks_of(const Tally& tally) {
  std::vector<std::string> remarks;
  for (const auto& id : tally.without_expected) {
    remarks.push_back(fmt::format("{} has no expected numbers: shown, not compared", id));
  }
  if (!tally.error.empty()) remarks.push_back(tally.error);
  return remarks;
}

std::string_view conclusion(const std::vector<Tally>& tallies) {
  const auto passed = [](const Tally& tally) { return tally.passed(); };
  const auto compares = [](const Tally& tally) { return tally.compared > 0; };
  if (!std::all_of(tallies.begin(), tallies.end(), passed)) return "Some numbers do not agree.";
  return std::any_of(tallies.begin(), tallies.end(), compares) ? "Every number agrees."
                                                               : "No number was compared.";
}

void CellLine::add(const Check& check, const std::vector<double>& got, const Comparison& comparison) {
  if (!comparison.compared()) {
    shown = true;
    return;
  }
  numbers += got.size();
  largest = std::max(largest, comparison.largest);
  if (comparison.verdict == Verdict::Different) differing.push_back({check, got, comparison});
}

std::string CellLine::difference() const {
  if (numbers == 0) return "";
  return largest == 0 ? "0" : fmt::format("{:.1e}", largest);
}

std::string_view CellLine::verdict() const {
  if (stopped) return "STOPPED";
  if (!differing.empty()) return "DIFFERS";
  if (numbers > 0) return "ok";
  return shown ? "shown" : "text";
}

}  // namespace notebooks
