#include <algorithm>
#include <array>
#include <cmath>
#include <system_error>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/viz/write_page.h>

#include "base/files.h"
#include "base/strings.h"
#include "viz/head_rows.h"
#include "viz/page_data.h"

namespace attentive {
namespace {

constexpr const char* kWriteSvg = "write_svg";
constexpr int64_t kMostTokens = 256;
constexpr size_t kMostCharacters = 16;
constexpr int kShades = 64;
constexpr double kTitle = 40, kScale = 56, kEdge = 12;  // around labels and cells
constexpr int kTitleSize = 14;

struct Colour {
  double red, green, blue;
};

// From nearly white to dark blue in even steps of lightness, so that the order is visible in grey print and
// with colour blindness.
std::string shade(int step) {
  constexpr std::array<Colour, 5> stops = {
      {{247, 251, 255}, {198, 219, 239}, {107, 174, 214}, {33, 113, 181}, {8, 48, 107}}};
  const double place = 4.0 * step / (kShades - 1);
  const auto left = std::min<size_t>(3, static_cast<size_t>(place));
  const double share = place - static_cast<double>(left);
  const auto between = [&](double a, double b) { return static_cast<int>(std::lround(a + (b - a) * share)); };
  const auto& a = stops[left];
  const auto& b = stops[left + 1];
  return fmt::format("#{:02x}{:02x}{:02x}", between(a.red, b.red), between(a.green, b.green),
                     between(a.blue, b.blue));
}

std::string label(const std::vector<std::string>& tokens, int64_t place) {
  return tokens.empty()
             ? fmt::format("{}", place)
             : shortened(viz::with_lone_bytes(tokens[static_cast<size_t>(place)]), kMostCharacters);
}

// An upper bound of a text's width, in units of the font size; characters beyond ASCII count more.
double width_of(const std::string& text) {
  double width = 0;
  for (const char c : text) width += static_cast<signed char>(c) >= 0 ? 0.65 : 0.5;
  return width;
}

// The space for the longest label.
double room_of_labels(const std::vector<std::string>& tokens, int64_t count, double font) {
  double most = 0;
  for (int64_t place = 0; place < count; ++place) most = std::max(most, width_of(label(tokens, place)));
  return std::clamp(font * most + kEdge + 6, 24.0, 160.0);
}

// Draws one head; all cells of the same shade form one path.
class Drawing {
 public:
  Drawing(const AttentionView& view, int64_t place, std::string title)
      : view_(view),
        title_(std::move(title)),
        memory_(view, place),
        rows_(memory_.rows),
        cell_(std::clamp(480.0 / static_cast<double>(std::max(rows_.queries, rows_.keys)), 4.0, 24.0)),
        font_(std::clamp(cell_ * 0.75, 3.0, 12.0)),
        left_(room_of_labels(view.query_tokens, rows_.queries, font_)),
        top_(kTitle + room_of_labels(view.key_tokens, rows_.keys, font_) - kEdge),
        right_(left_ + cell_ * static_cast<double>(rows_.keys)),
        bottom_(top_ + cell_ * static_cast<double>(rows_.queries)) {
    const auto maxima = viz::row_maxima(rows_);
    largest_ = *std::max_element(maxima.begin(), maxima.end());
  }

  std::string text() const { return head() + cells() + labels() + scale() + "</svg>\n"; }

 private:
  std::string head() const {
    const double of_title = kEdge + kTitleSize * width_of(title_);
    const double width = std::max({right_, left_ + 300, of_title}) + kEdge, height = bottom_ + kScale;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" role=\"img\" font-family=\"sans-serif\" font-size=\"{2:.1f}\">\n"
        "<title>{3}</title>\n"
        "<defs><pattern id=\"hidden\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\">"
        "<rect width=\"4\" height=\"4\" fill=\"#eeeeee\"/><path d=\"M0 4L4 0\" stroke=\"#999999\" "
        "stroke-width=\"0.7\"/>"
        "</pattern></defs>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        "<text x=\"{4}\" y=\"24\" font-size=\"{5}\">{3}</text>\n",
        width, height, font_, xml_text(title_), kEdge, kTitleSize);
  }

  // The index of a cell's path; the last path holds the hidden cells.
  size_t path_of(int64_t query, int64_t key) const {
    if (!rows_.sees(query, key)) return kShades;
    if (!(largest_ > 0)) return 0;
    const double share = static_cast<double>(rows_.weight(query, key)) / static_cast<double>(largest_);
    return static_cast<size_t>(std::lround(share * (kShades - 1)));
  }

  // A horizontal run of cells. Runs of hidden cells are in absolute coordinates, because scaling them with
  // the other cells would also scale the hatching.
  std::string run(int64_t query, int64_t key, int64_t end, bool hidden) const {
    if (!hidden) return fmt::format("M{} {}h{}v1h-{}z", key, query, end - key, end - key);
    const double width = cell_ * static_cast<double>(end - key);
    return fmt::format("M{:.2f} {:.2f}h{:.2f}v{:.2f}h-{:.2f}z", left_ + cell_ * static_cast<double>(key),
                       top_ + cell_ * static_cast<double>(query), width, cell_, width);
  }

  std::string cells() const {
    std::array<std::string, kShades + 1> paths;
    for (int64_t i = 0; i < rows_.queries; ++i) {
      for (int64_t j = 0; j < rows_.keys;) {
        const auto path = path_of(i, j);
        int64_t end = j + 1;
        while (end < rows_.keys && path_of(i, end) == path) ++end;
        paths[path] += run(i, j, end, path == kShades);
        j = end;
      }
    }
    auto out = fmt::format("<g transform=\"translate({:.2f} {:.2f}) scale({:.4f})\">\n", left_, top_, cell_);
    for (size_t step = 0; step < kShades; ++step) {
      if (!paths[step].empty())
        out += fmt::format("<path fill=\"{}\" d=\"{}\"/>\n", shade(static_cast<int>(step)), paths[step]);
    }
    out += "</g>\n";
    if (!paths[kShades].empty())
      out += fmt::format("<path class=\"hidden\" fill=\"url(#hidden)\" d=\"{}\"/>\n", paths[kShades]);
    return out + fmt::format(
                     "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"none\" "
                     "stroke=\"#777777\"/>\n",
                     left_, top_, right_ - left_, bottom_ - top_);
  }

  std::string labels() const {
    std::string out = "<g fill=\"#222222\" style=\"white-space:pre\">\n";
    for (int64_t i = 0; i < rows_.queries; ++i) {
      out += fmt::format(
          "<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"end\" dominant-baseline=\"central\">{}</text>\n",
          left_ - 6, top_ + cell_ * (static_cast<double>(i) + 0.5), xml_text(label(view_.query_tokens, i)));
    }
    for (int64_t j = 0; j < rows_.keys; ++j) {
      out += fmt::format(
          "<text transform=\"translate({:.2f} {:.2f}) rotate(-90)\" "
          "dominant-baseline=\"central\">{}</text>\n",
          left_ + cell_ * (static_cast<double>(j) + 0.5), top_ - 6, xml_text(label(view_.key_tokens, j)));
    }
    return out + "</g>\n";
  }

  bool hides() const {
    for (int64_t i = 0; i < rows_.queries; ++i) {
      for (int64_t j = 0; j < rows_.keys; ++j) {
        if (!rows_.sees(i, j)) return true;
      }
    }
    return false;
  }

  // The legend of the darkest shade and of the hatching.
  std::string scale() const {
    const double y = bottom_ + 16;
    std::string out = "<g font-size=\"11\" fill=\"#222222\">\n";
    for (int step = 0; step < kShades; ++step)
      out += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"2.2\" height=\"10\" fill=\"{}\"/>",
                         left_ + 2 * step, y, shade(step));
    out += fmt::format(
        "\n<text x=\"{:.2f}\" y=\"{:.2f}\">0</text><text x=\"{:.2f}\" y=\"{:.2f}\" "
        "text-anchor=\"end\">{:.4g}</text>\n",
        left_, y + 22, left_ + 2 * kShades, y + 22, largest_);
    if (hides()) {
      out += fmt::format(
          "<rect x=\"{0:.2f}\" y=\"{1:.2f}\" width=\"20\" height=\"10\" fill=\"url(#hidden)\" "
          "stroke=\"#777777\"/>"
          "<text x=\"{2:.2f}\" y=\"{3:.2f}\">hidden</text>\n",
          left_ + 160, y, left_ + 186, y + 9);
    }
    return out + "</g>\n";
  }

  const AttentionView& view_;
  const std::string title_;
  const viz::HeadMemory memory_;
  const viz::HeadRows& rows_;
  const double cell_, font_, left_, top_, right_, bottom_;
  float largest_ = 0;
};

}  // namespace

std::string to_svg(const AttentionView& view, const SvgOptions& options) {
  viz::check_view(kWriteSvg, view);
  const auto head = options.head == -1 ? view.heads[0] : options.head;
  const auto found = std::find(view.heads.begin(), view.heads.end(), head);
  TORCH_CHECK_VALUE(found != view.heads.end(), kWriteSvg, ": ", view.path, ": expected one of the heads ",
                    at::IntArrayRef(view.heads), ", got ", head);
  const auto queries = view.weights.size(1), keys = view.weights.size(2);
  TORCH_CHECK_VALUE(queries <= kMostTokens && keys <= kMostTokens, kWriteSvg, ": ", view.path,
                    ": expected at most ", kMostTokens, " queries and keys, got ", queries, " and ", keys,
                    "; take fewer tokens, or write_html");
  const auto title = options.title.empty() ? fmt::format("{}, head {}", view.path, head) : options.title;
  return Drawing(view, found - view.heads.begin(), title).text();
}

void write_svg(const std::filesystem::path& path, const AttentionView& view, const SvgOptions& options) {
  const auto text = to_svg(view, options);
  try {
    write_file(path, text);
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, kWriteSvg, ": ", path.string(), ": ", error.what());
  }
}

}  // namespace attentive
