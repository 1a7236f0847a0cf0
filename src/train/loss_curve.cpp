#include <algorithm>
#include <cmath>
#include <system_error>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/train/loss_curve.h>

#include "base/files.h"
#include "base/strings.h"

namespace attentive {
namespace {

constexpr double kWidth = 720, kHeight = 400, kLeft = 60, kRight = 20, kTop = 40, kBottom = 50;
constexpr size_t kMostPoints = 1000;

struct Point {
  double step, loss;
};

// A round distance for at most about six ticks: 1, 2 or 5 times a power of ten.
double tick_distance(double span) {
  const double rough = span / 6;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

class Axes {
 public:
  Axes(const std::vector<Point>& a, const std::vector<Point>& b) {
    for (const auto* points : {&a, &b}) {
      for (const auto& p : *points) {
        last_ = std::max(last_, p.step);
        low_ = std::min(low_, p.loss);
        high_ = std::max(high_, p.loss);
      }
    }
    if (low_ > high_) low_ = 0, high_ = 1;  // no points
    if (high_ - low_ < 1e-6) low_ -= 0.5, high_ += 0.5;
  }

  double x(double step) const { return kLeft + (kWidth - kLeft - kRight) * step / last_; }
  double y(double loss) const {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * (loss - low_) / (high_ - low_);
  }

  std::string svg() const {
    std::string out;
    const double dy = tick_distance(high_ - low_);
    for (double v = std::ceil(low_ / dy) * dy; v <= high_ + 1e-9; v += dy) {
      out += fmt::format(
          "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
          "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.4g}</text>\n",
          kLeft, kWidth - kRight, y(v), kLeft - 8, y(v) + 4, std::abs(v) < dy * 1e-6 ? 0.0 : v);
    }
    const double dx = std::max(1.0, tick_distance(last_));
    for (double s = 0; s <= last_ + 1e-9; s += dx) {
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.0f}</text>\n", x(s),
                         kHeight - kBottom + 18, s);
    }
    return out + fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">step</text>\n",
                             (kLeft + kWidth - kRight) / 2, kHeight - 12);
  }

 private:
  double last_ = 1, low_ = INFINITY, high_ = -INFINITY;
};

// Reduces the number of points for a picture: each remaining point is the mean of a run of rows.
std::vector<Point> thinned(const std::vector<Point>& points) {
  const size_t group = (points.size() + kMostPoints - 1) / kMostPoints;
  if (group <= 1) return points;
  std::vector<Point> out;
  for (size_t i = 0; i < points.size(); i += group) {
    const size_t end = std::min(points.size(), i + group);
    Point mean{0, 0};
    for (size_t k = i; k < end; ++k) mean.step += points[k].step, mean.loss += points[k].loss;
    const auto count = static_cast<double>(end - i);
    out.push_back({mean.step / count, mean.loss / count});
  }
  return out;
}

std::string polyline(const std::vector<Point>& points, const Axes& axes, const char* style) {
  std::string out = fmt::format("<polyline class=\"{}\" points=\"", style);
  for (const auto& p : points) out += fmt::format("{:.1f},{:.1f} ", axes.x(p.step), axes.y(p.loss));
  return out + "\"/>\n";
}

}  // namespace

std::string loss_curve_svg(const std::vector<LogRow>& rows, const std::string& title) {
  std::vector<Point> training, validation;
  for (const auto& row : rows) {
    const auto step = static_cast<double>(row.step);
    if (std::isfinite(row.loss)) training.push_back({step, row.loss});
    if (row.validation_loss && std::isfinite(*row.validation_loss))
      validation.push_back({step, *row.validation_loss});
  }
  training = thinned(training);
  const Axes axes(training, validation);
  auto svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<style>text{{fill:#777}} .grid{{stroke:#999;stroke-opacity:.35}} polyline{{fill:none}} "
      ".training{{stroke:#4a90d9;stroke-width:1.2}} .validation{{stroke:#d9734a;stroke-width:2}} "
      "circle{{fill:#d9734a}}</style>\n",
      kWidth, kHeight);
  svg += fmt::format("<text x=\"{}\" y=\"20\" font-size=\"14\">{}</text>\n", kLeft, xml_text(title));
  svg += axes.svg() + polyline(training, axes, "training") + polyline(validation, axes, "validation");
  for (const auto& p : validation) {
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>step {:.0f}: {:.4f}</title></circle>\n",
        axes.x(p.step), axes.y(p.loss), p.step, p.loss);
  }
  svg += fmt::format(
      "<polyline class=\"training\" points=\"{0},16 {1},16\"/><text x=\"{2}\" y=\"20\">training</text>\n"
      "<polyline class=\"validation\" points=\"{3},16 {4},16\"/><text x=\"{5}\" "
      "y=\"20\">validation{6}</text>\n",
      kWidth - 270, kWidth - 250, kWidth - 245, kWidth - 180, kWidth - 160, kWidth - 155,
      validation.empty() ? "" : fmt::format(" {:.4f}", validation.back().loss));
  return svg + "</svg>\n";
}

void save_loss_curve(const std::filesystem::path& path, const std::vector<LogRow>& rows,
                     const std::string& title) {
  try {
    write_file(path, loss_curve_svg(rows, title));
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, "save_loss_curve: ", path.string(), ": ", error.what());
  }
}

}  // namespace attentive
